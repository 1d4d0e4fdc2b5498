// Special registers and instructions without functional effect.
#include "exec/lower.h"

namespace softgpu::exec {

// Numbers of special registers (fact sheet, appendix C).
enum Special : uint8_t {
  kLaneId = 0,
  kClock = 1,
  kVirtId = 3,
  kTidPacked = 32,
  kTidX = 33,
  kTidY = 34,
  kTidZ = 35,
  kCtaidX = 37,
  kCtaidY = 38,
  kCtaidZ = 39,
  kNtid = 40,
  kSmemSize = 50,
  kEqMask = 56,
  kLtMask = 57,
  kLeMask = 58,
  kGtMask = 59,
  kGeMask = 60,
  kSmId = 67,
  kClockLo = 80,
  kClockHi = 81,
  kGlobalTimerLo = 82,
  kGlobalTimerHi = 83,
};

// Clocks count executed instructions, so that runs are equal.
static uint64_t clock_value(const Warp* w) {
  return w->block->instructions;
}

static bool is_clock(uint32_t special) {
  return special == kClock || (special >= kClockLo && special <= kGlobalTimerHi);
}

// What differs from one execution to the next. Where a block runs has no order among blocks.
static bool may_see(const Warp* w, uint32_t special) {
  if (is_clock(special)) return may(w, Unlike::kClock);
  const Watch* const watch = w->block->watch;
  return special != kSmId || !watch || !watch->journal || watch->journal->may(Unlike::kClock);
}

static uint32_t special_value(const Inst* in, const Warp* w, uint32_t lane) {
  const Block& block = *w->block;
  switch (in->imm) {
    case kLaneId:
      return lane;
    case kVirtId:
      return w->index << 8;
    case kCtaidX:
      return block.id.x;
    case kCtaidY:
      return block.id.y;
    case kCtaidZ:
      return block.id.z;
    case kSmId:
      return block.sm;
    case kNtid:
      return block.state->threads;
    case kSmemSize:
      return block.state->shared_bytes;
    case kEqMask:
      return 1u << lane;
    case kLtMask:
      return (1u << lane) - 1;
    case kLeMask:
      return (2u << lane) - 1;
    case kGtMask:
      return ~((2u << lane) - 1);
    case kGeMask:
      return ~((1u << lane) - 1);
    case kClock:
    case kClockLo:
    case kGlobalTimerLo:
      return static_cast<uint32_t>(clock_value(w));
    case kClockHi:
    case kGlobalTimerHi:
      return static_cast<uint32_t>(clock_value(w) >> 32);
    default:
      return 0;
  }
}

static const Inst* exec_S2R(const Inst* in, Warp* w, uint32_t exec) {
  if (!may_see(w, in->imm)) return conflict(w);
  Row out;
  for (uint32_t lane = 0; lane < kLanes; ++lane) out.lane[lane] = special_value(in, w, lane);
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

// The same for all lanes and executions.
static bool is_uniform(uint32_t special) {
  return (special >= kCtaidX && special <= kNtid) || special == kVirtId || special == kSmemSize;
}

static const Inst* exec_S2R_uniform(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t value = special_value(in, w, 0);
  write(dest(w, in->rd), exec, [&](int) { return splat(value); });
  return in + 1;
}

static const Inst* exec_S2R_lane(const Inst* in, Warp* w, uint32_t exec) {
  write(dest(w, in->rd), exec,
        [&](int h) { return lane_index() + static_cast<uint32_t>(kHalf * h); });
  return in + 1;
}

static const Inst* exec_S2R_tid(const Inst* in, Warp* w, uint32_t exec) {
  const Row* tid = w->rows + kTidRows + in->op;
  write(dest(w, in->rd), exec, [&](int h) { return load(tid, h); });
  return in + 1;
}

static const Inst* exec_S2R_tid_packed(const Inst* in, Warp* w, uint32_t exec) {
  const Row* tid = w->rows + kTidRows;
  write(dest(w, in->rd), exec,
        [&](int h) { return load(tid, h) | load(tid + 1, h) << 16 | load(tid + 2, h) << 26; });
  return in + 1;
}

// The pair form; the register with the high word follows the one with the low word.
static const Inst* exec_CS2R_64(const Inst* in, Warp* w, uint32_t exec) {
  const bool clock = in->imm == kClockLo || in->imm == kGlobalTimerLo;
  const uint64_t value = clock ? clock_value(w) : 0;
  if (!may_see(w, in->imm)) return conflict(w);
  Row* d = dest(w, in->rd);
  write(d, exec, [&](int) { return splat(static_cast<uint32_t>(value)); });
  write(d + 1, exec, [&](int) { return splat(static_cast<uint32_t>(value >> 32)); });
  return in + 1;
}

static void lower_S2R(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->imm = static_cast<uint32_t>(i.get(isa::S2R::SR));
  o->fn = exec_S2R;
  if (o->imm >= kTidX && o->imm <= kTidZ) {
    o->op = static_cast<uint8_t>(o->imm - kTidX);
    o->fn = exec_S2R_tid;
  } else if (o->imm == kTidPacked) {
    o->fn = exec_S2R_tid_packed;
  } else if (is_uniform(o->imm)) {
    o->fn = exec_S2R_uniform;
  } else if (o->imm == kLaneId) {
    o->fn = exec_S2R_lane;
  }
}

static void lower_CS2R(Lowering* l, const Instr& i, Inst* o) {
  lower_S2R(l, i, o);
  if (i.get(isa::CS2R::W64)) o->fn = exec_CS2R_64;
}

// A lane-dependent special register gives the value of the first running lane.
static const Inst* exec_S2UR(const Inst* in, Warp* w, uint32_t exec) {
  if (!may_see(w, in->imm)) return conflict(w);
  uint32_t value = 0;
  const auto lane = static_cast<uint32_t>(first_lane(w->active ? w->active : exec));
  const Row* tid = w->rows + kTidRows;
  if (in->imm >= kTidX && in->imm <= kTidZ) {
    value = tid[in->imm - kTidX].lane[lane];
  } else if (in->imm == kTidPacked) {
    value = tid[0].lane[lane] | tid[1].lane[lane] << 16 | tid[2].lane[lane] << 26;
  } else {
    value = special_value(in, w, lane);
  }
  write(dest(w, in->rd), kFull, [&](int) { return splat(value); });
  return in + 1;
}

static void lower_S2UR(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->imm = static_cast<uint32_t>(i.get(isa::S2UR::SR));
  o->fn = exec_S2UR;
}

static const Inst* exec_R2UR(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t value = source(w, in->a)->lane[first_lane(exec)];
  write(dest(w, in->rd), kFull, [&](int) { return splat(value); });
  return in + 1;
}

static void lower_R2UR(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->a = l->row(i.a);
  o->fn = exec_R2UR;
}

static const Inst* exec_nothing(const Inst* in, Warp*, uint32_t) {
  return in + 1;
}

static void lower_nothing(Lowering*, const Instr&, Inst* o) {
  o->fn = exec_nothing;
}

void register_special(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::S2R, lower_S2R);
  set(Op::CS2R, lower_CS2R);
  set(Op::S2UR, lower_S2UR);
  set(Op::R2UR, lower_R2UR);
  // Memory is sequentially consistent within a launch.
  for (const Op op : {Op::MEMBAR, Op::NOP, Op::PMTRIG, Op::ERRBAR, Op::CCTL, Op::DEPBAR})
    set(op, lower_nothing);
}

}  // namespace softgpu::exec
