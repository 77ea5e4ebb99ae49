# SPDX-License-Identifier: MIT
"""The index of verbs: every call of libibverbs and librdmacm that the examples, rdmacommon and
rdmashared make, and where."""
from __future__ import annotations

import os
import re
from pathlib import Path

from lab import ladder
from lab.paths import ROOT

# What each does, in a few words, from its man page or, where it has none, from rdma-core's sources.
PHRASES = {
    "Devices, ports and GIDs": {
        "ibv_get_device_list": "makes a list of the RDMA devices of this machine",
        "ibv_free_device_list": "frees that list; a device that has been opened stays open",
        "ibv_get_device_name": "the device's name: `rxe0`, `mlx5_0`",
        "ibv_open_device": "opens a device; all else is made from the context that it returns",
        "ibv_close_device": "closes it; what was made from it has to be gone",
        "ibv_query_device": "the device's limits and abilities",
        "ibv_query_device_ex": (
            "the same, and what has been added since: `max_dm_size`, ODP by QP type"),
        "ibv_query_port": "a port's state, LID, path MTU and link layer",
        "ibv_port_state_str": "the name of a port's state",
        "ibv_query_gid_ex": "an entry of a port's GID table, with its type and network interface",
        "ibv_query_gid_table": "all valid entries of the GID tables of a device's ports",
        "ibv_get_async_event": "takes the device's next asynchronous event, and waits for one",
        "ibv_ack_async_event": (
            "acknowledges it; the object that it is about cannot be destroyed before"),
        "ibv_event_type_str": "the name of an asynchronous event",
    },
    "Protection domains and memory": {
        "ibv_alloc_pd": "makes a protection domain",
        "ibv_dealloc_pd": "destroys it; refused while something is in it",
        "ibv_reg_mr": (
            "registers memory, so that the NIC may use it; the region has an lkey and an rkey"),
        "ibv_reg_mr_iova": (
            "the same, with the address that lies in requests chosen: 0, for example"),
        "ibv_dereg_mr": "ends a registration",
        "ibv_alloc_mw": "makes a memory window, which is not bound yet",
        "ibv_bind_mw": "binds a window of type 1 to a part of a region",
        "ibv_inc_rkey": "the next rkey for a window of type 2: its lowest byte counts",
        "ibv_dealloc_mw": "destroys a window, and with it what it granted",
        "ibv_alloc_dm": "takes a piece of the NIC's own memory",
        "ibv_reg_dm_mr": "registers it as a region; addresses in it are offsets",
        "ibv_memcpy_to_dm": "copies from host memory into it",
        "ibv_memcpy_from_dm": "copies from it into host memory",
        "ibv_free_dm": "gives it back",
    },
    "Completion queues": {
        "ibv_create_cq": "makes a completion queue with room for so many completions",
        "ibv_destroy_cq": "destroys it; waits for events that have not been acknowledged",
        "ibv_poll_cq": "takes completions that are there, and does not wait",
        "ibv_create_comp_channel": (
            "makes a completion channel: a file descriptor on which CQs tell of completions"),
        "ibv_destroy_comp_channel": "destroys it; refused while a CQ reports to it",
        "ibv_req_notify_cq": "arms a CQ: the next completion makes one event",
        "ibv_get_cq_event": "takes an event from a completion channel, and waits for one",
        "ibv_ack_cq_events": "acknowledges so many of a CQ's events",
        "ibv_wc_status_str": "a completion's status in words",
        "ibv_create_cq_ex": "makes a completion queue that is read member by member",
        "ibv_cq_ex_to_cq": "the same queue as an `ibv_cq`, for creating a QP",
        "ibv_start_poll": (
            "begins to read such a queue, at its first completion; `ENOENT` if there is none"),
        "ibv_next_poll": "goes on to the next completion",
        "ibv_wc_read_byte_len": "the current completion's number of bytes",
        "ibv_end_poll": "ends the reading",
    },
    "Queue pairs": {
        "ibv_create_qp": "makes a queue pair, in state RESET",
        "ibv_create_qp_ex": (
            "the same, with abilities that are asked for: the `ibv_wr_*` calls, for example"),
        "ibv_modify_qp": "moves it to another state, and sets its attributes",
        "ibv_query_qp": "its state and attributes",
        "ibv_query_qp_data_in_order": (
            "whether the bytes of a message are promised to arrive in order, so that the last may"
            " be polled"),
        "ibv_destroy_qp": "destroys it",
        "ibv_create_srq": "makes a shared receive queue",
        "ibv_modify_srq": "sets the limit below which it raises an event, or its size",
        "ibv_destroy_srq": "destroys it; refused while a QP uses it",
        "ibv_create_ah": "makes an address handle: the way to a peer of a UD queue pair",
        "ibv_create_ah_from_wc": "makes the one that leads back to the sender of a datagram",
        "ibv_destroy_ah": "destroys it",
        "ibv_attach_mcast": "lets a UD queue pair receive what is sent to a multicast group",
        "ibv_detach_mcast": "ends that",
    },
    "Requests": {
        "ibv_post_recv": "posts a list of receives",
        "ibv_post_srq_recv": "posts a list of receives to a shared receive queue",
        "ibv_post_send": (
            "posts a list of requests to the send queue: SEND, WRITE, READ, atomics, binds"),
        "ibv_qp_to_qp_ex": "the queue pair as the `ibv_wr_*` calls want it",
        "ibv_wr_start": "begins a batch of requests",
        "ibv_wr_send": "adds a SEND to the batch",
        "ibv_wr_rdma_write": "adds a WRITE",
        "ibv_wr_atomic_write": (
            "adds a WRITE of eight bytes that are seen all at once or not at all"),
        "ibv_wr_flush": (
            "adds a FLUSH: what was written is visible, or persistent, when it completes"),
        "ibv_wr_set_sge": "says which memory the request just added is about",
        "ibv_wr_complete": "posts the batch, all of it or nothing",
    },
    "Processes": {
        "ibv_fork_init": (
            "makes libibverbs ready for `fork()`; has to come before the first region is registered"
        ),
        "ibv_is_fork_initialized": "whether it is ready, or need not be",
        "ibv_import_device": "opens a device by the command file descriptor of another process",
        "ibv_import_pd": "takes over a protection domain of that process, by its handle",
        "ibv_unimport_pd": "lets go of it, without destroying it",
        "ibv_import_mr": "takes over a memory region of that process, by its handle",
        "ibv_unimport_mr": "lets go of it, without ending the registration",
    },
    "The connection manager": {
        "rdma_create_event_channel": (
            "makes a file descriptor on which events of connections arrive"),
        "rdma_destroy_event_channel": "closes it; its ids have to be gone",
        "rdma_create_id": "makes an id, which is to rdma_cm what a socket is to TCP",
        "rdma_destroy_id": "destroys it; its QP has to be gone, and its events acknowledged",
        "rdma_migrate_id": "takes an id to another event channel, or to one of its own",
        "rdma_set_option": "sets an option of an id: how long to try again, for example",
        "rdma_bind_addr": "gives the id an address and port of this host",
        "rdma_get_src_port": "the port that it has got, in network byte order",
        "rdma_get_peer_addr": "the address of the other side",
        "rdma_listen": "waits for connection requests",
        "rdma_resolve_addr": "finds device, port and GID for an IP address; ends in an event",
        "rdma_resolve_route": "finds the path; ends in an event",
        "rdma_create_qp": "makes a queue pair for the id, and moves it to INIT",
        "rdma_destroy_qp": "destroys it",
        "rdma_connect": "asks the server for a connection; the answer is an event",
        "rdma_accept": "answers a connection request with yes",
        "rdma_reject": "answers it with no",
        "rdma_disconnect": (
            "ends a connection: the QP goes to the error state, and the peer gets an event"),
        "rdma_get_cm_event": "takes the next event, and waits for one",
        "rdma_ack_cm_event": "acknowledges and frees it",
        "rdma_event_str": "the name of an event",
        "rdma_join_multicast": (
            "joins a multicast group; ends in an event with the address to send to"),
        "rdma_leave_multicast": "leaves it",
    },
}
# The man page, where it has another name than the call, or there is none.
MAN = {
    **dict.fromkeys(
        ("ibv_start_poll", "ibv_next_poll", "ibv_end_poll", "ibv_wc_read_byte_len"),
        "ibv_create_cq_ex"),
    "ibv_reg_mr_iova": "ibv_reg_mr",
    "ibv_qp_to_qp_ex": "ibv_wr_post",
    **dict.fromkeys(
        ("ibv_cq_ex_to_cq", "ibv_wc_status_str", "ibv_wr_atomic_write", "ibv_wr_flush"), None),
}
# The rdma-core that has a man page of its own for it first.
MAN_SINCE = {"ibv_wr_flush": 45}
# The lesson that introduces it, where that is not the first to mention it.
LESSON = {
    "ibv_poll_cq": "02",
    "ibv_query_gid_table": "01",
    "ibv_destroy_comp_channel": "06",
    "ibv_destroy_ah": "08",
    "ibv_destroy_srq": "09",
    "ibv_dereg_mr": "02",
}
# For a call, the sources of at most so many lessons are listed. Of more lessons, the numbers are
# listed.
FEW = 4
CALLS = {name: what for group in PHRASES.values() for name, what in group.items()}

# What is no code: comments, strings.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
OWN = re.compile(r"^(?:[\w:]+ )+[*&]?((?:ibv|rdma)_\w+)\(", re.M)  # a function of the example's own


def words(source: str) -> "tuple[set[str], set[str]]":
    """The names that begin like verbs in C++ source: all of them, and those that are called."""
    code = NO_CODE.sub(" ", source)
    own = set(OWN.findall(code))
    return (
        set(re.findall(r"\b(?:ibv|rdma)_\w+", code)) - own,
        set(re.findall(r"\b((?:ibv|rdma)_\w+)\s*\(", code)) - own)


def sources() -> "dict[str, list[Path]]":
    """Stem of a lesson, or "rdmacommon" -> its sources. Exercises and changes are copies of them;
    rdmashared is lesson 23's."""
    folders = {lesson.stem: [ROOT / "examples" / lesson.stem] for lesson in ladder.read()}
    folders["23_shared_client"] += [ROOT / "rdmashared/include/rdmashared", ROOT / "rdmashared/src"]
    folders["rdmacommon"] = [ROOT / "rdmacommon/include/rdmacommon", ROOT / "rdmacommon/src"]
    return {
        name: sorted(path for folder in paths for path in folder.glob("*.?pp"))
        for name, paths in folders.items()}


def uses() -> "dict[str, dict[str, list[Path]]]":
    """Call -> lesson or "rdmacommon" -> files."""
    found: "dict[str, dict[str, list[Path]]]" = {name: {} for name in CALLS}
    for where, paths in sources().items():
        for path in paths:
            for name in words(path.read_text())[0] & CALLS.keys():
                found[name].setdefault(where, []).append(path)
    return found


def lesson_of(name: str, used: "dict[str, list[Path]]") -> "ladder.Lesson | None":
    """The lesson that introduces a call: the first that mentions it, or else the first whose
    example uses it."""
    lessons = ladder.read()
    mentions = [lesson for lesson in lessons if re.search(rf"\b{name}\b", lesson.file.read_text())]
    users = [lesson for lesson in lessons if lesson.stem in used]
    chosen = [lesson for lesson in lessons if lesson.number == LESSON.get(name)]
    return next(iter(chosen + mentions + users), None)


def manual(name: str) -> "str | None":
    return MAN.get(name, name)


def links(files: "list[Path]", page: Path) -> str:
    return ", ".join(f"[{file.name}]({os.path.relpath(file, page.parent)})" for file in files)


def index(path: Path) -> "list[str]":
    """The block `<!-- verbs -->`."""
    lines, used = [], uses()
    for group, calls in PHRASES.items():
        lines += [
            "", f"## {group}", "", "| call | what it does | lesson | used in |",
            "|---|---|---|---|"]
        for name, what in calls.items():
            lesson = lesson_of(name, used[name])
            if lesson is None:
                raise ValueError(f"{name}: no lesson mentions or uses it")
            page = manual(name)
            since = (
                f" (man page since rdma-core {MAN_SINCE[name]})"
                if name in MAN_SINCE
                else " (no man page)")
            man = "" if page == name else f" (`man {page}`)" if page else since
            users = [where for where in used[name] if where != "rdmacommon"]
            listed = users if len(users) <= FEW else users[:2]
            parts = [f"{where.split('_')[0]} " + links(used[name][where], path) for where in listed]
            if more := users[len(listed) :]:
                parts.append("also " + ", ".join(where.split("_")[0] for where in more))
            if "rdmacommon" in used[name]:
                parts.append("rdmacommon " + links(used[name]["rdmacommon"], path))
            places = "; ".join(parts)
            lines.append(
                f"| `{name}` | {what}{man} | [{lesson.number}]({lesson.file.name}) | {places} |")
    return [*lines, ""]
