#!/usr/bin/env python3
"""Compares the figures of machine.py and the verdicts of table.py with figures counted by hand."""
import machine
import table

SASS = """
\t.section\t.text.product,"ax",@progbits
product:
.text.product:
        /*0000*/                   HFMA2.MMA R1, -RZ, RZ, 0, 0 ;
.L_x_1:
        /*0010*/                   LDG.E.U16.CONSTANT R2, [R4.64] ;
        /*0020*/                   BAR.SYNC 0x0 ;
.L_x_0:
        /*0030*/                   LDS.128 R8, [R3] ;
        /*0040*/                   LDS R12, [R3+0x10] ;
        /*0050*/                   FFMA R16, R8, R12, R16 ;
        /*0060*/              @!P1 FFMA R17, R9, R12, R17 ;
        /*0070*/               @P0 BRA `(.L_x_0) ;
        /*0080*/                   HMMA.16816.F32.BF16 R20, R8, R10, R20 ;
        /*0090*/                   STG.E.64 [R4.64], R20 ;
        /*00a0*/                   NOP ;
        /*00b0*/               @P2 BRA `(.L_x_1) ;
        /*00c0*/                   EXIT ;
.L_x_2:
        /*00d0*/                   BRA `(.L_x_2);
"""
USAGE = " Function product:\n  REG:40 STACK:8 SHARED:1024 LOCAL:16 CONSTANT[0]:400\n"

GCN = """
product:                                ; @product
; %bb.0:
\ts_load_dwordx4 s[0:3], s[4:5], 0x0
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tglobal_load_dwordx2 v[2:3], v0, s[0:1]
\tds_read2_b32 v[4:5], v1 offset1:1
\tv_pk_fma_f32 v[6:7], v[2:3], v[4:5], v[6:7]
\tv_mfma_f32_32x32x8bf16_1k a[0:15], v[2:3], v[4:5], a[0:15]
\ts_waitcnt lgkmcnt(0)
\ts_cbranch_scc1 .LBB0_1
; %bb.2:
\ts_endpgm
.Lfunc_end0:
"""


# The compiler moved a block of the first loop behind the second one, which is inside no other.
MOVED = """
product:                                ; @product
; %bb.0:
\ts_mov_b32 s0, 0
.LBB0_1:
\ts_cbranch_scc0 .LBB0_5
.LBB0_2:
\tv_pk_fma_f32 v[6:7], v[2:3], v[4:5], v[6:7]
\tv_pk_fma_f32 v[6:7], v[2:3], v[4:5], v[6:7]
\ts_cbranch_scc1 .LBB0_1
; %bb.3:
\ts_nop 0
.LBB0_4:
\tv_fma_f32 v8, v2, v4, v8
\ts_cbranch_scc1 .LBB0_4
; %bb.6:
\ts_endpgm
.LBB0_5:
\tv_mov_b32_e32 v3, 0
\ts_branch .LBB0_2
.Lfunc_end0:
"""


def expect(what, found, wanted):
    assert found == wanted, f"{what}: {found}, not {wanted}"


def figures():
    """The outer loop has the most multiply-adds: 64 in the m16n8k16 instruction; the inner two."""
    code = machine.read_sass(SASS)["product"]
    expect("loops", len(machine.loops_of(code)), 2)     # the branch to itself is none
    f = machine.figures("sm_80", *machine.read_usage(USAGE)["product"], code)
    for key, wanted in {"registers": 40, "spills": 24, "local": 1024, "instructions": 14, "loop": 6,
                        "issued": 5, "macs": 64, "matrix": True, "load": 2, "local_load": 10,
                        "a_byte": 6 / 10}.items():
        expect(key, f[key], wanted)
    expect("share", machine.share(f, True), 1)          # 64 * 32 / 256 of 5 cycles
    expect("share in TF32", machine.share(f | {"issued": 64}, False), 0.25)
    code = machine.read_sass(SASS.replace("16816", "1684"))["product"]
    f = machine.figures("sm_80", 40, 0, 0, code)        # 16, and the inner loop's two count 32
    expect("the inner loop", (f["loop"], f["macs"]), (5, 2))
    ticket = SASS.replace("EXIT ;\n.L_x_2:\n", "ATOMG.E.INC R2, [R4.64], R3 ;\n.L_x_2:\n"
                          "        /*00c8*/                   LDG.E.128 R8, [R4.64] ;\n")
    ticket = ticket.replace("BRA `(.L_x_2)", "@P3 BRA `(.L_x_2)")
    f = machine.figures("sm_80", 40, 0, 0, machine.read_sass(ticket)["product"])
    expect("behind a ticket", f["moving_load"], 2)
    called = SASS.replace("@P2 BRA `(.L_x_1) ;\n", "@P2 CALL.REL.NOINC `(.L_x_3) ;\n"
                          "        /*00b8*/                   BRA `(.L_x_1) ;\n.L_x_3:\n", 1)
    loops = machine.loops_of(machine.read_sass(called)["product"])
    expect("a loop left by a call", sorted(len(own) for _, own, _ in loops), [5, 7])
    code = machine.read_gcn(GCN)["product"]
    f = machine.figures("gfx90a", 32, 0, 512, code)
    for key, wanted in {"instructions": 8, "loop": 6, "issued": 2, "macs": 2 + 128, "load": 8,
                        "local_load": 8}.items():
        expect(key, f[key], wanted)
    expect("share", machine.share(f | {"macs": 4}, True), 4 * 64 / 128 / 8)
    code = machine.read_gcn(MOVED)["product"]
    expect("loops, one with a moved block", [(depth, len(own)) for depth, own, _ in
                                             machine.loops_of(code)], [(0, 6), (0, 2)])
    expect("the hot one", machine.figures("gfx90a", 32, 0, 512, code)["macs"], 4)


def verdicts():
    row = dict.fromkeys(table.COLUMNS, "") | {"spills": "0", "each": "1.50", "peak": "60.0 %"}
    for change, wanted in (({}, 0), ({"spills": "8"}, 1), ({"each": "1.60"}, 1),
                           ({"each": "1.40", "peak": "70.0 %"}, 0), ({"peak": "50.0 %"}, 1),
                           ({"registers": "255"}, 0)):
        expect(change, len(list(table.worse("sm_80", {"a": row}, {"a": row | change}))), wanted)
    expect("kernels", len(list(table.worse("sm_80", {"a": row}, {"b": row}))), 2)
    text = table.written({"sm_80": ("NVRTC 13.0", {"a f32": row})})
    table.TABLE = type("", (), {"exists": lambda _: True, "read_text": lambda _: text})()
    expect("file", table.known(), {"sm_80": ("NVRTC 13.0", {"a f32": row})})


if __name__ == "__main__":
    figures()
    verdicts()
