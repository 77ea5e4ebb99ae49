# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        372,
        "The states of a queue pair",
        (
            "RESET, INIT, RTR, RTS in a row, with what each transition must be told and what each"
            " state allows; an error leads to ERR, from where only RESET leads on."))
    states = [
        (10, "RESET", ["just created"], "plain"),
        (225, "INIT", ["receives may", "be posted"], "plain"),
        (440, "RTR", ["ready to receive:", "takes packets"], "server"),
        (655, "RTS", ["ready to send:", "sends as well"], "server"),
    ]
    for x, name, what, role in states:
        p.box(x, 160, 135, 84, role, name, what)
    needs = [
        (145, "INIT", ["port_num", "pkey_index", "qp_access_flags"]),
        (
            360, "RTR",
            ["ah_attr, path_mtu", "dest_qp_num, rq_psn", "max_dest_rd_atomic", "min_rnr_timer"]),
        (575, "RTS", ["sq_psn, timeout", "retry_cnt, rnr_retry", "max_rd_atomic"]),
    ]
    for x, state, attributes in needs:
        p.arrow(x, 202, x + 80, 202, "plain")
        p.line(x + 40, 202, x + 40, 132, "plain", dashed=True)
        p.text(x + 40, 22, f"to {state} it is told", style="faint", anchor="middle")
        for number, attribute in enumerate(attributes):
            p.text(x + 40, 44 + 20 * number, attribute, style="code", anchor="middle")
    p.box(440, 302, 350, 60, "bad", "ERR", ["everything posted completes with FLUSH_ERR"])
    p.arrow(505, 244, 505, 302, "bad")
    p.arrow(720, 244, 720, 302, "bad")
    p.text(612, 278, "a request failed", anchor="middle", role="bad")
    p.line(440, 332, 77, 332)
    p.arrow(77, 332, 77, 244)
    p.text(100, 322, "the only way back: RESET, and all of it again", style="faint")
    return p.svg()
