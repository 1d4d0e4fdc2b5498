// Control flow: branches, calls, convergence barriers, EXIT, BPT.
#include "exec/lower.h"
#include "exec/system_call.h"

namespace softgpu::exec {

// ---- branches ----------------------------------------------------------------------------------

static const Inst* exec_BRA(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t taken = exec & ps0(in, w);
  if (!taken) return in + 1;
  return branch(in, w, taken, in->target);
}

// .DIV: taken when some living lane is elsewhere; .CONV: taken when none is.
template <bool kDivergent>
static const Inst* exec_BRA_if(const Inst* in, Warp* w, uint32_t exec) {
  const bool divergent = w->active != w->live;
  const uint32_t taken = exec & ps0(in, w);
  if (!taken || divergent != kDivergent) return in + 1;
  return branch(in, w, taken, in->target);
}

static const Inst* relative_target(Lowering* l, const Instr& i) {
  const int64_t target = int64_t{i.pc} + kInstrBytes + 4 * i.get_signed(isa::BRA::OFFSET);
  return l->at(target < 0 ? UINT32_MAX : static_cast<uint32_t>(target));
}

static void lower_BRA(Lowering* l, const Instr& i, Inst* o) {
  o->target = relative_target(l, i);
  const uint64_t kind = i.get(isa::BRA::KIND);
  o->fn = kind == 2 ? exec_BRA_if<true> : kind == 3 ? exec_BRA_if<false> : exec_BRA;
}

// Register targets may differ by lane: one group per distinct target.
static const Inst* jump_each(const Inst* in, Warp* w, uint32_t taken, uint64_t add) {
  const Program& program = *w->block->state->program;
  const Row* a = source(w, in->a);
  const Inst* next = nullptr;
  while (taken) {
    const int lane = first_lane(taken);
    const uint32_t low = a[0].lane[lane], high = a[1].lane[lane];
    const uint32_t same =
        taken & test([&](int h) { return (load(a, h) == low) & (load(a + 1, h) == high); });
    const uint64_t pc = add + (low | uint64_t{high} << 32);
    const uint64_t n = pc / kInstrBytes;
    const bool null = !add && !pc;  // a null function; the kernel's first instruction lies there
    if (null || pc % kInstrBytes || n + 1 >= program.code.size()) {
      return fault(in, w, FaultKind::kIllegalInstruction, lane,
                   "jump to [" + std::to_string(pc) + "]");
    }
    next = branch(in, w, same, &program.code[n]);
    taken &= ~same;
  }
  return w->active || !next ? next : next_group(w);
}

static const Inst* exec_BRX(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t taken = exec & ps0(in, w);
  if (!taken) return in + 1;
  return jump_each(in, w, taken, static_cast<uint64_t>(in->offset));
}

static void lower_RET_ABS(Lowering* l, const Instr& i, Inst* o) {
  o->a = l->row(i.a);
  o->offset = 4 * i.get_signed(isa::BRX::OFFSET);
  o->fn = exec_BRX;
}

static void lower_BRX(Lowering* l, const Instr& i, Inst* o) {
  o->a = l->row(i.a);
  o->offset = int64_t{i.pc} + kInstrBytes + 4 * i.get_signed(isa::BRX::OFFSET);
  o->fn = exec_BRX;
}

static void lower_CALL_REL(Lowering* l, const Instr& i, Inst* o) {
  if (i.a.kind == OperandKind::kReg) return lower_BRX(l, i, o);
  o->target = relative_target(l, i);
  o->fn = exec_BRA;
}

// Functions of the driver lie above all code. Lanes that call one of the program's own functions
// jump; the others are served here, so they must not be mixed (they never are: linkers know both).
static const Inst* exec_CALL_ABS(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t taken = exec & ps0(in, w);
  if (!taken) return in + 1;
  const Row* a = source(w, in->a);
  const auto address_of = [&](int lane) {
    return a[0].lane[lane] | uint64_t{a[1].lane[lane]} << 32;
  };
  const uint64_t first = address_of(first_lane(taken));
  if (first && first < kSyscallFirst) return jump_each(in, w, taken, 0);
  for (uint32_t left = taken; left; left &= left - 1) {
    const int lane = first_lane(left);
    if (!system_call(in, w, lane, address_of(lane))) return nullptr;
  }
  return in + 1;
}

// The address is part of the instruction.
static void lower_CALL_ABS(Lowering* l, const Instr& i, Inst* o) {
  o->a = l->row(i.a);
  o->imm = l->register_row(4);  // arguments start at R4
  o->slot = l->new_slot();      // of what the function reads: not that of a store
  o->fn = exec_CALL_ABS;
  if (i.a.kind == OperandKind::kReg) return;
  const uint64_t address = i.get(isa::CALL_ABS::ADDRESS) * 4;
  o->a = l->immediate_pair(static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32));
}

// Code addresses are offsets in the kernel's text: the code is based at 0.
static const Inst* exec_LEPC(const Inst* in, Warp* w, uint32_t exec) {
  Row* d = dest(w, in->rd);
  write(d, exec, [&](int) { return splat(in->imm); });
  write(d + 1, exec, [&](int) { return splat(0); });
  return in + 1;
}

static void lower_LEPC(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->imm = i.pc;
  o->fn = exec_LEPC;
}

static const Inst* exec_EXIT(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t ending = exec & ps0(in, w);
  return ending ? exit_lanes(in, w, ending) : in + 1;
}

static void lower_EXIT(Lowering*, const Instr&, Inst* o) {
  o->fn = exec_EXIT;
}

static const Inst* exec_BPT(const Inst* in, Warp* w, uint32_t exec) {
  return fault(in, w, FaultKind::kDeviceTrap, first_lane(exec), "trap");
}

static void lower_BPT(Lowering*, const Instr&, Inst* o) {
  o->fn = exec_BPT;
}

// ---- convergence barriers ----------------------------------------------------------------------

static Row* barrier_row(const Inst* in, Warp* w) {
  return w->rows + kBarrierRows + in->op;
}

static const Inst* exec_BSSY(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t lanes = exec & ps0(in, w);
  if (lanes) write(barrier_row(in, w), lanes, [&](int) { return splat(lanes); });
  return in + 1;
}

static const Inst* exec_BSYNC(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t lanes = exec & ps0(in, w);
  if (!lanes) return in + 1;
  const Row* row = barrier_row(in, w);
  const uint32_t participants = row->lane[first_lane(lanes)];
  if ((participants & w->live) == lanes) {
    const uint32_t agree = test([&](int h) { return load(row, h) == participants; });
    if ((agree & lanes) == lanes) return in + 1;  // all lanes are here already
  }
  park(in, w, lanes, Parked::kBsync, in->op);
  return leave(in, w, lanes);
}

// The lanes leave the barrier, for all its participants.
static const Inst* exec_BREAK(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t lanes = exec & ps0(in, w);
  Row* row = barrier_row(in, w);
  uint32_t participants = 0;
  for_lanes(lanes, [&](int lane) { participants |= row->lane[lane]; });
  for_lanes(participants, [&](int lane) { row->lane[lane] &= ~lanes; });
  return in + 1;
}

static const Inst* exec_BMOV_to_register(const Inst* in, Warp* w, uint32_t exec) {
  Row* row = barrier_row(in, w);
  write(dest(w, in->rd), exec, [&](int h) { return load(row, h); });
  if (in->flags) write(row, exec, [](int) { return splat(0); });
  return in + 1;
}

static const Inst* exec_BMOV_to_barrier(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  write(barrier_row(in, w), exec, [&](int h) { return load(b, h); });
  return in + 1;
}

template <Handler kHandler>
static void lower_barrier(Lowering*, const Instr& i, Inst* o) {
  o->op = static_cast<uint8_t>(i.get(isa::BSSY::BREG));
  o->fn = kHandler;
}

static void lower_BMOV(Lowering* l, const Instr& i, Inst* o) {
  o->op = static_cast<uint8_t>(i.get(isa::BMOV::BREG));
  if (i.b.kind == OperandKind::kReg) {
    o->b = l->row(i.b);
    o->fn = exec_BMOV_to_barrier;
    return;
  }
  o->rd = l->rd_row(i);
  o->flags = static_cast<uint8_t>(i.get(isa::BMOV::CLEAR));
  o->fn = exec_BMOV_to_register;
}

void register_control(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::BRA, lower_BRA);
  set(Op::CALL_REL, lower_CALL_REL);
  set(Op::CALL_ABS, lower_CALL_ABS);
  set(Op::BRX, lower_BRX);
  set(Op::BRXU, lower_BRX);
  set(Op::RET, lower_BRX);
  set(Op::RET_ABS, lower_RET_ABS);
  set(Op::LEPC, lower_LEPC);
  set(Op::EXIT, lower_EXIT);
  set(Op::BPT, lower_BPT);
  set(Op::BSSY, lower_barrier<exec_BSSY>);
  set(Op::BSYNC, lower_barrier<exec_BSYNC>);
  set(Op::BREAK, lower_barrier<exec_BREAK>);
  set(Op::BMOV, lower_BMOV);
}

}  // namespace softgpu::exec
