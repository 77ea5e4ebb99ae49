#!/bin/busybox sh
# The emulated machine's first program. It loads the modules, lays the host's files under the machine's
# own, makes a SoftRoCE device, and hands over to agent.py. Its output goes to the console log.
/bin/busybox mkdir -p /proc /sys /dev /host /top /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

for module in /modules/*.ko; do
    case $module in
    *-dummy.ko) insmod "$module" numdummies=0 ;; # or it makes a dummy0 that nobody asked for
    *) insmod "$module" ;;
    esac
done

# The host's files, read-only; what is written over them lives in memory and goes with the machine.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none,ro host /host || exec poweroff -f
mount -t tmpfs -o mode=755 top /top
mkdir /top/upper /top/work
mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work overlay /root || exec poweroff -f
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

cat > /root/run/lab/network.sh <<'SETUP'
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
# A netdev of its own, since rdma_cm refuses lo. The fixed MAC gives a fixed link-local GID.
ip link add lab0 address 02:00:00:00:00:01 type dummy
ip addr add 10.77.0.1/24 dev lab0
ip addr add fd77::1/64 dev lab0 nodad
ip link set lab0 up
rdma link add rxe0 type rxe netdev lab0
SETUP
# Beside Python's start, which takes as long; the agent waits for it.
mknod /dev/null c 1 3 # the shell gives it to what runs in the background
chroot /root /bin/sh /run/lab/network.sh &
for word in $(cat /root/proc/cmdline); do
    case $word in lab.python=*) python=${word#lab.python=} ;; esac
done
hostname lab
exec chroot /root "$python" -I -S /run/lab/agent.py
