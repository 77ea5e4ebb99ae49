// SPDX-License-Identifier: MIT
#include "hints.hpp"

#include <linux/capability.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace rdmacommon {
namespace {

// The kernel's own, which errno.h does not have: librdmacm passes it on.
constexpr int ENOTSUPP = 524;

struct ErrnoHint {
  std::string_view call; // the row is for all calls that begin so
  int error;
  std::string_view what_to_do;
  std::string_view anchor;
};

// These texts stand in several rows.
constexpr std::string_view no_more_objects =
    "the cgroup of this container, or the device, allows no more objects: see rdma.max and "
    "rdma.current";
constexpr std::string_view no_route =
    "no route leads from the interface of sgid_index to the peer's GID: see ip route";
constexpr std::string_view nobody_has_the_gid =
    "nobody in the network has the peer's GID: it is link-local, of another subnet, or its "
    "interface is down";

// The first row that matches is taken, so the special ones stand before the general ones.
constexpr ErrnoHint errno_hints[] = {
    // ---- devices and ports
    {"ibv_get_device_list", ENOSYS, "this kernel has no RDMA support: run ./lab doctor",
     "no-device"},
    {"ibv_open_device", EACCES, "this user may not open /dev/infiniband/uverbs*",
     "no-dev-infiniband"},
    {"ibv_open_device", ENOENT,
     "there is no /dev/infiniband/uverbs*: modprobe ib_uverbs, and in a container pass "
     "/dev/infiniband in",
     "no-dev-infiniband"},
    {"ibv_open_device", EPERM,
     "this container or network namespace may not use the device: see rdma system",
     "other-namespace"},
    {"ibv_query_port", EINVAL, "ports are numbered from 1 to phys_port_cnt", "query-einval"},
    {"ibv_query_gid", EINVAL, "the index or the port number is outside the table: see gid_tbl_len",
     "query-einval"},
    {"ibv_query_pkey", ENOENT,
     "the index or the port number is outside the table: see pkey_tbl_len", "query-einval"},
    // ---- objects
    {"ibv_reg_mr", EPERM, "this user may lock no memory at all: see ulimit -l", "memlock"},
    {"ibv_reg_mr", EFAULT,
     "the range is not mapped as a whole, or its pages are read-only and the access flags allow "
     "writing",
     "registration-refused"},
    {"ibv_reg_mr", EINVAL,
     "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE, too; or "
     "the length is 0",
     "registration-refused"},
    {"ibv_reg_mr", EOPNOTSUPP,
     "the device does not have one of the access flags, for example IBV_ACCESS_ON_DEMAND",
     "registration-refused"},
    {"ibv_dereg_mr", EINVAL, "a memory window is still bound to this region: deallocate it first",
     "destroy-ebusy"},
    {"ibv_alloc_dm", EINVAL,
     "the length must be a multiple of 64 bytes (mlx5), and at most max_dm_size",
     "registration-refused"},
    {"ibv_reg_dm_mr", EINVAL,
     "the flags need IBV_ACCESS_ZERO_BASED, and the range must lie in the device memory",
     "registration-refused"},
    {"ibv_create_cq", EINVAL,
     "cqe must be 1 to the device's max_cqe, and comp_vector less than num_comp_vectors",
     "create-qp-einval"},
    {"ibv_resize_cq", EINVAL,
     "cqe must be 1 to the device's max_cqe, and not less than the completions in the queue: poll "
     "first",
     "create-qp-einval"},
    {"ibv_create_srq", EINVAL, "a capacity is over the device's limits: max_srq_wr, max_srq_sge",
     "create-qp-einval"},
    {"rdma_create_srq", EINVAL, "a capacity is over the device's limits: max_srq_wr, max_srq_sge",
     "create-qp-einval"},
    {"ibv_modify_srq", EINVAL,
     "srq_limit is over the queue's length, or the device (mlx5) cannot change the length",
     "create-qp-einval"},
    {"ibv_create_qp", EINVAL,
     "a capacity is over the device's limits, or a member of the struct has not been set; ask for "
     "less inline data, fewer SGEs or requests",
     "create-qp-einval"},
    {"ibv_create_qp", EPERM, "IBV_QPT_RAW_PACKET needs CAP_NET_RAW", "create-qp-einval"},
    {"ibv_create_ah_from_wc", EINVAL,
     "the datagram came by multicast, or its destination is no GID of this port",
     "address-handle-refused"},
    {"ibv_create_ah_from_wc", EPROTONOSUPPORT,
     "grh must point to the first 40 bytes of the receive, as they came", "address-handle-refused"},
    {"ibv_create_ah", EINVAL,
     "on RoCE it needs a GRH with the peer's GID; port_num and sgid_index must exist",
     "address-handle-refused"},
    {"ibv_attach_mcast", EINVAL, "only a UD QP can be attached, and only to a multicast GID",
     "multicast-refused"},
    {"ibv_attach_mcast", ENOMEM, "this group has as many QPs as max_mcast_qp_attach allows",
     "multicast-refused"},
    {"ibv_detach_mcast", EINVAL, "the QP is not attached with this GID and this LID",
     "multicast-refused"},
    {"ibv_bind_mw", EINVAL, "it binds windows of type 1; ibv_post_send binds those of type 2",
     "window-bind"},
    {"ibv_bind_mw", EPERM, "window and region must be in the same protection domain",
     "window-bind"},
    {"ibv_destroy_qp", EBUSY, "the QP is still attached to a multicast group: detach it first",
     "destroy-ebusy"},
    // ---- states
    {"ibv_modify_qp(RTR)", EINVAL,
     "on RoCE the address must hold a GRH with the peer's GID, and port_num and sgid_index must be "
     "those whose GID the peer was told",
     "rtr-einval"},
    {"ibv_modify_qp", EINVAL,
     "the QP is not in a state from which this one is reached, or an attribute that the transition "
     "requires is missing from the mask, or out of range",
     "modify-qp-einval"},
    {"ibv_modify_qp", EPERM, "only a privileged program may set a Q_Key whose highest bit is set",
     "modify-qp-einval"},
    // ---- posting
    {"ibv_post_send", ENOMEM,
     "the send queue is full, or the request has more SGEs or more inline data than the QP was "
     "created for, or (mlx5) the QP is not in RTS",
     "post-enomem"},
    {"ibv_wr_complete", ENOMEM, "the send queue is full", "post-enomem"},
    {"ibv_post_recv", ENOMEM,
     "the receive queue is full, or (mlx5) the QP has an SRQ: post to that one", "post-enomem"},
    {"ibv_post_srq_recv", ENOMEM, "the shared receive queue is full", "post-enomem"},
    {"ibv_post_send", EINVAL,
     "the QP is not in state RTS, or the request has more inline data than the QP was created for, "
     "or is malformed",
     "post-einval"},
    {"ibv_wr_complete", EINVAL,
     "the QP is not in state RTS, or a request has more inline data than the QP was created for, "
     "or is malformed",
     "post-einval"},
    {"ibv_post_recv", EINVAL,
     "the QP is in RESET or has an SRQ, or the request has more SGEs than the QP was created for",
     "post-einval"},
    {"ibv_post_srq_recv", EINVAL, "the request has more SGEs than the SRQ was created for",
     "post-einval"},
    {"ibv_post_send", ENOTCONN, "the QP is not connected, and on iWARP only rdma_cm connects one",
     "post-einval"},
    {"ibv_post_send", EACCES, "a child process may not post to what its parent has created",
     "after-fork"},
    {"ibv_fork_init", EINVAL, "it has to come before the first ibv_reg_mr", "after-fork"},
    {"ibv_poll_cq", EIO,
     "the device is gone, or a QP was destroyed while its completions were in the CQ",
     "device-gone"},
    // ---- rdma_cm
    {"rdma_create_event_channel", ENOENT,
     "there is no /dev/infiniband/rdma_cm: load the kernel's module rdma_ucm",
     "no-connection-manager"},
    {"rdma_create_event_channel", EACCES, "this user may not open /dev/infiniband/rdma_cm",
     "no-connection-manager"},
    {"rdma_create_event_channel", EPERM, "this container may not open /dev/infiniband/rdma_cm",
     "no-connection-manager"},
    {"rdma_create_id", ENOMEM,
     "without a channel, this also means that no channel could be opened: "
     "rdma_create_event_channel tells why",
     "no-connection-manager"},
    {"rdma_create_ep", ENOMEM,
     "this also means that no channel could be opened: rdma_create_event_channel tells why",
     "no-connection-manager"},
    {"rdma_create_id", EINVAL,
     "the port space must be RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB or RDMA_PS_IB", "cm-einval"},
    {"rdma_set_option", EINVAL,
     "the type of service and the acknowledgement timeout take one byte; the other options an int, "
     "before rdma_listen",
     "cm-einval"},
    {"rdma_set_option", ENOSYS, "this kernel does not have the option", "cm-einval"},
    {"rdma_resolve_addr", ENODEV,
     "rdma_cm goes by addresses, and no RDMA device is on the way to this one; 127.0.0.1 and ::1 "
     "never are: give the address of the device's network interface",
     "cm-address"},
    {"rdma_resolve_addr", ENETUNREACH, "there is no route to this address: see ip route",
     "cm-address"},
    {"rdma_resolve_addr", EHOSTUNREACH, "there is no route to this address: see ip route",
     "cm-address"},
    {"rdma_resolve_addr", EADDRNOTAVAIL, "the source address is not one of this host",
     "cm-address"},
    {"rdma_resolve_addr", EINVAL,
     "sa_family must be set, an fe80:: address needs sin6_scope_id, and an id resolves only once",
     "cm-address"},
    {"rdma_resolve_route", ENODEV,
     "127.0.0.1 and ::1 are on no RDMA device: give the address of the device's network interface, "
     "on this host, too",
     "cm-address"},
    {"rdma_resolve_route", EINVAL,
     "the event ADDR_RESOLVED has to come first, and an id resolves only once", "cm-einval"},
    {"rdma_bind_addr", EADDRINUSE, "another program listens on this port: choose another, or 0",
     "cm-port-taken"},
    {"rdma_bind_addr", EADDRNOTAVAIL,
     "another program listens on this port for all addresses, or this host does not have this one",
     "cm-port-taken"},
    {"rdma_bind_addr", EACCES, "a port below 1024 needs CAP_NET_BIND_SERVICE", "cm-port-taken"},
    {"rdma_bind_addr", ENODEV, "this address is on no RDMA device", "cm-address"},
    {"rdma_bind_addr", EINVAL,
     "sa_family must be set, an fe80:: address needs sin6_scope_id, and an id is bound only once",
     "cm-address"},
    {"rdma_listen", EADDRINUSE, "another id has this port; with SoftiWARP, TCP programs count, too",
     "cm-port-taken"},
    {"rdma_listen", EINVAL, "the id listens already, or has been resolved or connected",
     "cm-einval"},
    {"rdma_get_request", EINVAL, "the listener has an event channel: use rdma_get_cm_event",
     "cm-einval"},
    {"rdma_connect", EINVAL,
     "private data of more than 56 bytes, a depth that is over the device's limits, or "
     "ROUTE_RESOLVED has not come",
     "cm-einval"},
    {"rdma_connect", ECONNREFUSED, "nobody listens on this port, or the program there refuses",
     "cm-nobody-listens"},
    {"rdma_create_qp", EINVAL,
     "the peer has given up the connection, a capacity is over the device's limits, or the PD is "
     "not of id->verbs",
     "cm-einval"},
    {"rdma_accept", EINVAL,
     "the client has given up the connection, private data of more than 196 bytes, or a depth that "
     "is over the device's limits",
     "cm-einval"},
    {"rdma_accept", ECONNRESET, "the client has given up the connection", "cm-einval"},
    {"rdma_reject", EINVAL,
     "the client has given up the connection, or private data of more than 148 bytes", "cm-einval"},
    {"rdma_establish", EINVAL, "it is for an id without a queue pair, after CONNECT_RESPONSE",
     "cm-einval"},
    {"rdma_notify", EISCONN, "the connection is established already", "cm-einval"},
    {"rdma_disconnect", EINVAL, "the id was never connected", "cm-einval"},
    {"rdma_join_multicast", EINVAL,
     "the id must be of RDMA_PS_UDP, and bound to an address of the device or resolved by it",
     "multicast-refused"},
    {"rdma_join_multicast", ENODEV, "the id's network interface is gone, or has no IPv4 address",
     "multicast-refused"},
    {"rdma_join_multicast", EADDRNOTAVAIL, "the IPoIB interface is not up", "multicast-refused"},
    {"rdma_join_multicast", ENOTSUPP, "RoCEv2 has groups of IPv4 only", "multicast-refused"},
    {"rdma_leave_multicast", EADDRNOTAVAIL,
     "it takes the address that was joined, with the same port", "multicast-refused"},
    // ---- TCP and shared memory
    {"Caller::join", ECONNREFUSED,
     "no sender has this name, or the one that had it has ended: start it first", "no-sender"},
    {"connect to ", ECONNREFUSED, "start the server first; it says on which TCP port it listens",
     "connection-refused"},
    {"connect to ", ETIMEDOUT, "the host is down, or a firewall drops the packets",
     "connection-timeout"},
    // ---- several calls each
    {"ibv_", ENODATA, "the GID table has no entry at this index", "query-einval"},
    {"ibv_modify_qp", ETIMEDOUT, nobody_has_the_gid, "rtr-timeout"},
    {"ibv_create_ah", ETIMEDOUT, nobody_has_the_gid, "rtr-timeout"},
    {"ibv_modify_qp", ENETUNREACH, no_route, "rtr-timeout"},
    {"ibv_create_ah", ENETUNREACH, no_route, "rtr-timeout"},
    {"ibv_modify_qp", EHOSTUNREACH, no_route, "rtr-timeout"},
    {"ibv_create_ah", EHOSTUNREACH, no_route, "rtr-timeout"},
    {"ibv_modify_qp", ENODEV, "the GID's network interface is gone, or in another namespace",
     "other-namespace"},
    {"ibv_create_ah", ENODEV, "the GID's network interface is gone, or in another namespace",
     "other-namespace"},
    {"ibv_", EBUSY, "something still uses this object: destroy it in the reverse order of creation",
     "destroy-ebusy"},
    {"ibv_post_", ENOENT,
     "the object has been destroyed, perhaps by a destructor that ran in a child process",
     "after-fork"},
    {"ibv_modify_qp", ENOENT,
     "the object has been destroyed, perhaps by a destructor that ran in a child process",
     "after-fork"},
    {"ibv_open_device", EAGAIN, no_more_objects, "cgroup-limit"},
    {"ibv_alloc_", EAGAIN, no_more_objects, "cgroup-limit"},
    {"ibv_create_", EAGAIN, no_more_objects, "cgroup-limit"},
    {"ibv_reg_", EAGAIN, no_more_objects, "cgroup-limit"},
    {"rdma_create_", EAGAIN, no_more_objects, "cgroup-limit"},
    {"ibv_", EIO,
     "the device was removed or reset while it was open, or its firmware has failed: see dmesg",
     "device-gone"},
    {"ibv_", EOPNOTSUPP, "the device, the kernel or the rdma-core here lacks this feature",
     "skipped"},
    {"rdma_create_", ENODEV,
     "libibverbs finds no RDMA device, or no provider for it: run ./lab doctor", "no-device"},
    {"rdma_", EACCES, "the process has forked or changed its user since it opened the channel",
     "after-fork"},
    {"rdma_", ETIMEDOUT, "that host does not answer", "cm-unreachable"},
    {"rdma_", EPERM, "librdmacm could not set up the device or the queue pair", "cm-connect-error"},
    {"ibv_get_", EINTR, "a signal came while the call waited: make it again", "interrupted"},
    {"rdma_get_", EINTR, "a signal came while the call waited: make it again", "interrupted"},
    {"", EMFILE, "this process may not open more files: see ulimit -n", "too-many-open-files"},
    {"", ENFILE, "the system may not open more files: see fs.file-max", "too-many-open-files"},
};

struct StatusHint {
  ibv_wc_status status;
  std::string_view what_to_do;
  std::string_view anchor;
};

constexpr StatusHint status_hints[] = {
    {IBV_WC_RNR_RETRY_EXC_ERR,
     "the peer had no receive posted; post receives before the peer learns the QP number",
     "rnr-retry"},
    {IBV_WC_RETRY_EXC_ERR,
     "no acknowledgement came: the peer's QP is gone or not yet in RTR, or its address is wrong",
     "retry-exceeded"},
    {IBV_WC_LOC_LEN_ERR, "the message is longer than the receive buffer", "local-length"},
    {IBV_WC_LOC_QP_OP_ERR,
     "the message is longer than the receive, or an SGE of ours is wrong: SoftRoCE has this status "
     "for both",
     "local-operation"},
    {IBV_WC_LOC_PROT_ERR,
     "an SGE's lkey, address and length do not lie inside one registered region, or it lacks "
     "IBV_ACCESS_LOCAL_WRITE",
     "local-protection"},
    {IBV_WC_MW_BIND_ERR,
     "the region lacks IBV_ACCESS_MW_BIND or does not contain the window, or the window is bound, "
     "or its last rkey was not kept",
     "window-bind"},
    {IBV_WC_REM_INV_REQ_ERR,
     "the peer's NIC refused the request: its receive buffer is too small, its QP does not allow "
     "the operation, or an atomic's address is not a multiple of eight",
     "remote-invalid-request"},
    {IBV_WC_REM_ACCESS_ERR,
     "rkey, address and length must lie inside one region of the peer's, in the PD of its QP, with "
     "the access flags set on both region and QP",
     "remote-access"},
    {IBV_WC_REM_OP_ERR, "the peer's NIC could not complete the request", "remote-operation"},
    {IBV_WC_WR_FLUSH_ERR,
     "the QP went to the error state; the first completion that failed tells why", "flush"},
};

struct CmHint {
  rdma_cm_event_type event;
  int status; // 0: any
  std::string_view what_to_do;
  std::string_view anchor;
};

constexpr CmHint cm_hints[] = {
    {RDMA_CM_EVENT_ADDR_ERROR, 0,
     "nobody in the network has this address, or no RDMA device is on the way to it", "cm-address"},
    {RDMA_CM_EVENT_ROUTE_ERROR, 0, "the subnet manager knows no path to this port", "cm-route"},
    {RDMA_CM_EVENT_UNREACHABLE, 0,
     "the host does not answer: it has no rdma_cm there, or a firewall drops UDP port 4791",
     "cm-unreachable"},
    {RDMA_CM_EVENT_REJECTED, 8,
     "nobody listens on this port: start the server first; it says on which rdma_cm port",
     "cm-nobody-listens"},
    {RDMA_CM_EVENT_REJECTED, 0,
     "the program at the other side does not want this connection, or ended before it answered",
     "cm-rejected"},
    {RDMA_CM_EVENT_CONNECT_ERROR, 0,
     "the other side agrees, but the QP on this side could not be taken to RTS",
     "cm-connect-error"},
    {RDMA_CM_EVENT_DISCONNECTED, 0, "the peer has ended the connection, or has died",
     "cm-disconnected"},
};

bool may_lock_any_amount() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
    return true;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "CapEff:" && status >> word)
      return (std::stoull(word, nullptr, 16) >> CAP_IPC_LOCK & 1) != 0;
  return false;
}

// True if the process has nearly as many mappings as vm.max_map_count allows.
bool has_used_up_its_mappings() {
  std::ifstream maps("/proc/self/maps"), limit("/proc/sys/vm/max_map_count");
  const auto count = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  std::ptrdiff_t most = 0;
  return limit >> most && count > most - most / 20;
}

// ENOMEM does not say which limit has been reached, so this looks at each of them.
std::string hint_for_no_memory() {
  if (has_used_up_its_mappings())
    return hint("this process has nearly as many mappings as vm.max_map_count allows: register a "
                "few large regions instead of many small ones",
                "registration-refused");
  if (!may_lock_any_amount())
    return hint("more memory than this user may lock: see ulimit -l", "memlock");
  return hint("this process may lock any amount of memory, so the device or the kernel has none "
              "left: ask for fewer or smaller objects",
              "registration-refused");
}

bool needs_locked_memory(std::string_view call) {
  for (const char *one : {"ibv_reg_mr", "ibv_create_cq", "ibv_create_qp", "ibv_create_srq",
                          "rdma_create_qp", "rdma_create_srq"})
    if (call.starts_with(one))
      return true;
  return false;
}

} // namespace

std::string hint_for_cm_event(rdma_cm_event_type event, int status) {
  for (const CmHint &row : cm_hints)
    if (row.event == event && (row.status == 0 || row.status == status))
      return hint(row.what_to_do, row.anchor);
  return "";
}

std::string hint_for_no_cm_event(rdma_cm_event_type wanted) {
  switch (wanted) {
  case RDMA_CM_EVENT_CONNECT_REQUEST:
    return hint("no client has come: start one, with this host's address", "no-client");
  case RDMA_CM_EVENT_DISCONNECTED: // the host has been there
    return "";
  default:
    return hint_for_cm_event(RDMA_CM_EVENT_UNREACHABLE, 0);
  }
}

std::string hint(std::string_view what_to_do, std::string_view anchor) {
  return std::string(what_to_do) + "; see lessons/troubleshooting.md#" + std::string(anchor);
}

std::string hint_for_other_program() {
  return hint("check that the peer is one of these programs", "bad-exchange");
}

std::string hint_for_errno(std::string_view call, int error) {
  if (error == ENOMEM && needs_locked_memory(call))
    return hint_for_no_memory();
  for (const ErrnoHint &row : errno_hints)
    if (row.error == error && call.substr(0, row.call.size()) == row.call)
      return hint(row.what_to_do, row.anchor);
  return "";
}

std::string hint_for_status(ibv_wc_status status) {
  for (const StatusHint &row : status_hints)
    if (row.status == status)
      return hint(row.what_to_do, row.anchor);
  return "";
}

} // namespace rdmacommon
