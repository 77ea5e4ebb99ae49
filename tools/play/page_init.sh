#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# The first program of the machine in the page. It makes an RDMA device, puts a shell on the first
# serial port, and runs what the page asks for on the second one.
#
# The page writes lines "NUMBER COMMAND". It gets "NUMBER:TEXT" for each line that the command
# prints, and "NUMBER=STATUS" after its last one. "NUMBER stop OTHER" ends the command OTHER.
# "NUMBER become MAC IPV4 IPV6" gives the machine other addresses, and makes its device again.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root
/bin/busybox --install -s /bin
export PATH=/bin:/files HOME=/root TERM=xterm
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=1777,size=100% tmp /tmp
# The page puts programs here, when the reader runs them.
mkdir /files /dev/shm
mount -t 9p -o trans=virtio,version=9p2000.L host9p /files
mount -t tmpfs -o mode=1777 shm /dev/shm
hostname lab

# Gives the machine its addresses, and makes its RDMA device.
become() {
    ifconfig lab0 hw ether "$1"
    ip addr add "$2" dev lab0
    ip addr add "$3" dev lab0
    ip link set lab0 up
    rdma link add rxe0 type rxe netdev lab0
}

# The kernel's command line has the addresses of ./lab's emulated machine.
ip link set lo up
ip link set eth0 name lab0
become "$lab_mac" "$lab_ipv4" "$lab_ipv6"

# The start has left its data in memory that is free now. Zeros make the saved machine smaller.
free=$(sed -n 's/^MemFree: *\([0-9]*\) kB/\1/p' /proc/meminfo)
dd if=/dev/zero of=/tmp/zeros bs=64k count=$(((free - 3072) / 64)) 2>/dev/null
rm /tmp/zeros

# Runs a command, and says what it prints. The command becomes a child of the first process: a shell
# that reads a line loses what it has read of it when a child of its own ends.
run() (
    {
        setsid sh -c "echo \$\$ >/run/$1; cd /files; exec $2" </dev/null 2>&1 |
            while IFS= read -r line; do
                printf '%s:%s\n' "$1" "$line"
            done
        echo "$1=$?"
    } &
)

# Ends it, as soon as it has said its number.
stop() (
    {
        until [ -s "/run/$1" ]; do sleep 0.1; done
        kill -TERM -"$(cat "/run/$1")"
    } &
)

{
    set -o pipefail
    stty -F /dev/ttyS1 raw -echo
    exec </dev/ttyS1 >/dev/ttyS1 2>&1
    echo ready
    while read -r number command; do
        case $command in
            "stop "*) stop "${command#stop }" ;;
            "become "*)
                rdma link delete rxe0
                ip link set lab0 down
                ip addr flush dev lab0
                become ${command#become }
                echo "$number=$?"
                ;;
            *) run "$number" "$command" ;;
        esac
    done
} &

# A shell that ends is followed by another one.
while :; do
    (cd /root && exec setsid cttyhack sh -l </dev/ttyS0 >/dev/ttyS0 2>&1)
done
