// Instructions in which lanes or warps meet: SHFL, VOTE, MATCH, WARPSYNC, BAR, B2R, YIELD,
// NANOSLEEP.
#include "exec/lower.h"

namespace softgpu::exec {

// ---- SHFL --------------------------------------------------------------------------------------

enum Shuffle { kIdx, kUp, kDown, kBfly };

// The word of lane `from` of a 32-lane row, for sixteen lanes at once.
static VU permute(const Row* row, VU from) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_permutex2var_epi32(as<__m512i>(load(row, 0)), as<__m512i>(from),
                                          as<__m512i>(load(row, 1))));
#else
  VU r;
  for (int i = 0; i < kHalf; ++i) r[i] = row->lane[from[i]];
  return r;
#endif
}

// Lanes whose source is out of their segment keep their own value; so the program can tell, their
// predicate is false. An inactive source lane gives whatever its register holds.
template <int kMode>
static const Inst* exec_SHFL(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  uint32_t valid = 0;
  VU result[2];
  for (int h = 0; h < 2; ++h) {
    const VI lane = as<VI>(lane_index() + static_cast<uint32_t>(kHalf * h));
    const VI select = as<VI>(load(b, h) & 31u), clamp = as<VI>(load(c, h) & 31u);
    const VI segment = as<VI>(load(c, h) >> 8 & 31u);
    const VI limit = (lane & segment) | (clamp & ~segment);
    VI j = lane;
    if (kMode == kIdx) j = (lane & segment) | (select & ~segment);
    if (kMode == kUp) j = lane - select;
    if (kMode == kDown) j = lane + select;
    if (kMode == kBfly) j = lane ^ select;
    const VI ok = kMode == kUp ? VI(j >= limit) : VI(j <= limit);
    result[h] = permute(a, choose(ok, as<VU>(j), as<VU>(lane)));
    valid |= collapse(ok) << (kHalf * h);
  }
  write(dest(w, in->rd), exec, [&](int h) { return result[h]; });
  set_pred(w, in->pd0, exec, valid);
  return in + 1;
}

static void lower_SHFL(Lowering* l, const Instr& i, Inst* o) {
  static constexpr Handler kHandlers[] = {exec_SHFL<kIdx>, exec_SHFL<kUp>, exec_SHFL<kDown>,
                                          exec_SHFL<kBfly>};
  sources(l, i, o);
  o->fn = kHandlers[i.get(isa::SHFL::MODE)];
}

// ---- votes -------------------------------------------------------------------------------------

static uint32_t vote(uint8_t mode, uint32_t ballot, uint32_t exec) {
  const bool all = ballot == exec, any = ballot != 0;
  const bool r = mode == 0 ? all : mode == 1 ? any : all || !any;
  return r ? kFull : 0;
}

static const Inst* exec_VOTE(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t ballot = ps0(in, w) & exec;
  write(dest(w, in->rd), exec, [&](int) { return splat(ballot); });
  set_pred(w, in->pd0, exec, vote(in->op, ballot, exec));
  return in + 1;
}

// The same into the uniform datapath: one result for the warp.
static const Inst* exec_VOTEU(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t ballot = ps0(in, w) & exec;
  write(dest(w, in->rd), kFull, [&](int) { return splat(ballot); });
  set_pred(w, in->pd0, kFull, vote(in->op, ballot, exec));
  return in + 1;
}

static void lower_VOTE(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->op = static_cast<uint8_t>(i.get(isa::VOTE::MODE));
  o->fn = exec_VOTE;
}

static void lower_VOTEU(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->op = static_cast<uint8_t>(i.get(isa::VOTEU::MODE));
  o->fn = exec_VOTEU;
}

// ---- MATCH -------------------------------------------------------------------------------------

// Lanes of `among` whose value is that of lane `first`.
static uint32_t equal_lanes(const Inst* in, const Row* a, int first, uint32_t among) {
  const uint32_t low = a[0].lane[first];
  uint32_t equal = among & test([&](int h) { return load(a, h) == low; });
  if (!in->flags) return equal;
  const uint32_t high = a[1].lane[first];
  return equal & test([&](int h) { return load(a + 1, h) == high; });
}

static const Inst* exec_MATCH_any(const Inst* in, Warp* w, uint32_t exec) {
  const Row* a = source(w, in->a);
  Row out{};
  for (uint32_t left = exec; left;) {
    const uint32_t equal = equal_lanes(in, a, first_lane(left), left);
    for_lanes(equal, [&](int lane) { out.lane[lane] = equal; });
    left &= ~equal;
  }
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

static const Inst* exec_MATCH_all(const Inst* in, Warp* w, uint32_t exec) {
  const bool all = equal_lanes(in, source(w, in->a), first_lane(exec), exec) == exec;
  write(dest(w, in->rd), exec, [&](int) { return splat(all ? exec : 0); });
  set_pred(w, in->pd0, exec, all ? kFull : 0);
  return in + 1;
}

static void lower_MATCH(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(i.get(isa::MATCH::U64));
  o->fn = i.form == Form::MATCH_any ? exec_MATCH_any : exec_MATCH_all;
}

// ---- synchronisation ---------------------------------------------------------------------------

static const Inst* exec_WARPSYNC(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t lanes = exec & ps0(in, w);
  const Row* b = source(w, in->b);
  uint32_t wanted = 0;
  for_lanes(lanes, [&](int lane) { wanted |= b->lane[lane]; });
  if (!(wanted & w->live & ~lanes)) return in + 1;
  for_lanes(lanes, [&](int lane) { park(in, w, 1u << lane, Parked::kWarpsync, b->lane[lane]); });
  return leave(in, w, lanes);
}

static void lower_WARPSYNC(Lowering* l, const Instr& i, Inst* o) {
  o->b = l->row(i.b);
  o->fn = exec_WARPSYNC;
}

enum BarMode : uint8_t { kBarSync = 0, kBarArrive = 1, kBarReduce = 2 };

static const Inst* arrive(const Inst* in, Warp* w, uint32_t exec, uint32_t id, uint32_t count) {
  Barrier& barrier = w->block->barriers[id];
  barrier.arrived += static_cast<uint32_t>(std::popcount(exec));
  barrier.expected = count;
  barrier.op = in->op;
  if (in->flags == kBarReduce) {
    barrier.count_true += static_cast<uint32_t>(std::popcount(ps0(in, w) & exec));
  }
  if (in->flags == kBarArrive) {
    try_release_barrier(w->block, id);
    return in + 1;
  }
  park(in, w, exec, Parked::kBar, id);
  try_release_barrier(w->block, id);
  return leave(in, w, exec);
}

static const Inst* exec_BAR(const Inst* in, Warp* w, uint32_t exec) {
  return arrive(in, w, exec, in->imm, in->slot);
}

enum BarRegister : uint8_t { kIdInRegister = 1, kCountInRegister = 2 };

// Barrier and number of threads come from the low and the high half of B.
static const Inst* exec_BAR_register(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t value = b->lane[first_lane(exec)];
  if (exec & ~test([&](int h) { return load(b, h) == value; })) {
    return fault(in, w, FaultKind::kIllegalInstruction, first_lane(exec),
                 "threads of a warp name different barriers");
  }
  const uint32_t id = in->size & kIdInRegister ? value & (kNamedBarriers - 1) : in->imm;
  const uint32_t count = in->size & kCountInRegister ? value >> 16 & 0xfff : in->slot;
  return arrive(in, w, exec, id, count);
}

// A field that a form does not have is zero in its words, or part of a register number.
static void lower_BAR(Lowering* l, const Instr& i, Inst* o) {
  const auto is = [&](Form one, Form other) { return i.form == one || i.form == other; };
  o->flags = static_cast<uint8_t>(i.get(isa::BAR::MODE));
  if (o->flags == kBarReduce) o->op = static_cast<uint8_t>(i.get(isa::BAR::RED));
  o->imm = static_cast<uint32_t>(i.get(isa::BAR::ID));
  o->slot = static_cast<uint32_t>(i.get(isa::BAR::COUNT));
  o->fn = exec_BAR;
  if (i.b.kind != OperandKind::kReg) return;
  o->b = l->row(i.b);
  o->size = is(Form::BAR_both, Form::BAR_arv_both) ? kIdInRegister | kCountInRegister
            : is(Form::BAR_id, Form::BAR_arv_id)   ? kIdInRegister
                                                   : kCountInRegister;
  o->fn = exec_BAR_register;
}

static const Inst* exec_B2R(const Inst* in, Warp* w, uint32_t exec) {
  write(dest(w, in->rd), exec, [&](int) { return splat(w->bar_result); });
  set_pred(w, in->pd0, exec, w->bar_result ? kFull : 0);
  return in + 1;
}

static void lower_B2R(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->fn = exec_B2R;
}

// A spin loop says that it spins: let other groups, and for NANOSLEEP other warps, go first.
static const Inst* exec_YIELD(const Inst* in, Warp* w, uint32_t) {
  spins(w);
  if (!w->runnable_count) return in + 1;
  push_group(w, w->active, in + 1);
  return next_group(w);
}

static const Inst* exec_NANOSLEEP(const Inst* in, Warp* w, uint32_t) {
  spins(w);
  return yield(w, in + 1);
}

template <Handler kHandler>
static void lower_plain(Lowering*, const Instr&, Inst* o) {
  o->fn = kHandler;
}

void register_warp(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::SHFL, lower_SHFL);
  set(Op::VOTE, lower_VOTE);
  set(Op::VOTEU, lower_VOTEU);
  set(Op::MATCH, lower_MATCH);
  set(Op::WARPSYNC, lower_WARPSYNC);
  set(Op::BAR, lower_BAR);
  set(Op::B2R, lower_B2R);
  set(Op::YIELD, lower_plain<exec_YIELD>);
  set(Op::NANOSLEEP, lower_plain<exec_NANOSLEEP>);
}

}  // namespace softgpu::exec
