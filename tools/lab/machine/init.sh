#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# The emulated machine's first program. It loads the modules, lays the host's files under the
# machine's own, makes an RDMA device, and hands over to agent.py. Its output goes to the console
# log.
/bin/busybox mkdir -p /proc /sys /dev /host /top /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

# Its usual queue, fq_codel, drops what waits for too long, and under emulation everything does.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
for module in /modules/*.ko; do
    case $module in
    *-dummy.ko) insmod "$module" numdummies=0 ;; # or it makes a dummy0 that nobody asked for
    *) insmod "$module" ;;
    esac
done

# The host's files, read-only; what is written over them lives in memory and goes with the machine.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none,ro host /host ||
    exec poweroff -f
# Linux maps a file of an uncached 9p page by page, with a request to the host for each, and a
# program's start maps thousands of pages. Now a request brings as much as fits. agent.py does the
# same for the project's folder.
echo 512 >/sys/class/bdi/9p-1/read_ahead_kb
mount -t tmpfs -o mode=755 top /top
mkdir /top/upper /top/work
mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work overlay /root ||
    exec poweroff -f
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
for place in tmp run dev/shm; do
    mkdir -p /root/$place
    mount -t tmpfs -o mode=1777 tmpfs /root/$place
done
chmod 755 /root/run
mkdir -p /root/dev/pts /root/run/lab/host
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /root/dev/pts
# The same host files without the layer on top: what changes on the host is seen here at once.
mount --move /host /root/run/lab/host
cp /agent.py /frames.py /root/run/lab/
mkdir -p /root/lib/modules

# A minimal system has no name for itself.
[ -e /root/etc/hosts ] || printf '127.0.0.1 localhost\n::1 localhost\n' >/root/etc/hosts

driver=rxe
for word in $(cat /root/proc/cmdline); do
    case $word in
    lab.python=*) python=${word#lab.python=} ;;
    lab.host=*) host=${word#lab.host=} ;;
    lab.driver=*) driver=${word#lab.driver=} ;;
    lab.mac=*) mac=${word#lab.mac=} ;;
    lab.ipv4=*) ipv4=${word#lab.ipv4=} ;;
    lab.ipv6=*) ipv6=${word#lab.ipv6=} ;;
    esac
done

# libibverbs reads each file in libibverbs.d and loads the provider that it names, at each program's
# start. There is one device here: without the other providers, ibv_devices takes half the time.
if [ -e /root/etc/libibverbs.d/$driver.driver ]; then
    mkdir /root/run/lab/libibverbs.d
    cp /root/etc/libibverbs.d/$driver.driver /root/run/lab/libibverbs.d/
    mount --bind /root/run/lab/libibverbs.d /root/etc/libibverbs.d
fi

# In one go, since each program started takes its time. lab0 is a netdev of its own, since rdma_cm
# refuses lo; the fixed MAC gives a fixed link-local GID.
{
    echo link set lo up
    if [ -z "$host" ]; then
        echo link add lab0 address $mac type dummy
    else
        # One of two hosts. lab0 is plugged into a bridge, as into a switch, and the wire to the
        # other host comes out of that: so tcpdump on lab0 sees what this host sends, also when the
        # wire loses it (commands/hosts.py).
        echo link set eth0 name wire
        echo link set wire addrgenmode none
        echo link set wire txqueuelen 10000
        echo link add lab0 address $mac type veth peer name port
        echo link set port addrgenmode none
        echo link add switch type bridge forward_delay 0 mcast_snooping 0
        echo link set switch addrgenmode none
        echo link set wire master switch up
        echo link set port master switch up
        # Without ARP: else the switch, too, answers for lab0's address, with a MAC of its own, and
        # what then comes in by it never gets to the RDMA device.
        echo link set switch arp off up
    fi
    echo addr add $ipv4 dev lab0
    echo addr add $ipv6 dev lab0 nodad
    echo link set lab0 up
} >/root/run/lab/network
cat >/root/run/lab/network.sh <<SETUP
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip -batch /run/lab/network
rdma link add ${driver}0 type $driver netdev lab0
SETUP
# Beside Python's start, which takes as long; the agent waits for it.
mknod /dev/null c 1 3 # the shell gives it to what runs in the background
chroot /root /bin/sh /run/lab/network.sh &
hostname "${host:-lab}"
exec chroot /root "$python" -I -S /run/lab/agent.py
