// Atomics: ATOM ATOMG ATOMS RED and their compare-and-swap forms.
//
// They are real atomics of the host, since other streams may run at the same time. Lanes go in
// ascending order, so float sums are the same in every run, unless noise is asked for (noise.h).
#include "exec/access.h"
#include "exec/half.h"
#include "exec/noise.h"

namespace softgpu::exec {

enum AtomicOp : uint8_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExch, kCas };
enum AtomicType : uint8_t {
  kTypeU32,
  kTypeS32,
  kTypeU64,
  kTypeF32,
  kTypeF16x2,
  kTypeS64,
  kTypeF64
};

template <class T>
static T combine_integer(AtomicOp op, T old, T value) {
  switch (op) {
    case kAdd:
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(value));
    case kMin:
      return std::min(old, value);
    case kMax:
      return std::max(old, value);
    case kInc:
      return old >= value ? T{0} : static_cast<T>(old + 1);
    case kDec:
      return old == 0 || old > value ? value : static_cast<T>(old - 1);
    case kAnd:
      return old & value;
    case kOr:
      return old | value;
    case kXor:
      return old ^ value;
    default:
      return value;
  }
}

static uint32_t flush_word(uint32_t v) {
  return v & 0x7f800000u ? v : v & kSign;
}

// `drawn`: of noise, 0 without.
static uint32_t add_floats(uint32_t a, uint32_t b, uint64_t drawn) {
  const float r = add_with_noise(std::bit_cast<float>(flush_word(a)),
                                 std::bit_cast<float>(flush_word(b)), drawn);
  return r == r ? flush_word(std::bit_cast<uint32_t>(r)) : kNaN;
}

static uint16_t add_half(float x, float y, uint64_t drawn) {
  const auto round = static_cast<uint8_t>(drawn & 1 ? 1 + (drawn >> 1 & 1) : 0);
  const uint16_t sum = half_from_double(x + y, round);
  return (sum & 0x7c00) == 0x7c00 ? half_from_double(x + y) : sum;  // nothing becomes infinite
}

static uint32_t add_halves(uint32_t a, uint32_t b, uint64_t drawn) {
  uint32_t r = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const float x = half_to_float(static_cast<uint16_t>(a >> shift));
    const float y = half_to_float(static_cast<uint16_t>(b >> shift));
    r |= uint32_t{add_half(x, y, drawn >> shift)} << shift;
  }
  return r;
}

static uint64_t add_doubles(uint64_t a, uint64_t b, uint64_t drawn) {
  const double r = add_with_noise(std::bit_cast<double>(a), std::bit_cast<double>(b), drawn);
  return r == r ? std::bit_cast<uint64_t>(r) : 0xfff80000'00000000u;
}

static uint64_t combine(AtomicOp op, AtomicType type, uint64_t old, uint64_t value,
                        uint64_t drawn) {
  const auto a = static_cast<uint32_t>(old), b = static_cast<uint32_t>(value);
  switch (type) {
    case kTypeU32:
      return combine_integer<uint32_t>(op, a, b);
    case kTypeS32:
      return static_cast<uint32_t>(
          combine_integer<int32_t>(op, static_cast<int32_t>(a), static_cast<int32_t>(b)));
    case kTypeU64:
      return combine_integer<uint64_t>(op, old, value);
    case kTypeS64:
      return static_cast<uint64_t>(
          combine_integer<int64_t>(op, static_cast<int64_t>(old), static_cast<int64_t>(value)));
    case kTypeF32:
      return op == kExch ? value : add_floats(a, b, drawn);
    case kTypeF16x2:
      return op == kExch ? value : add_halves(a, b, drawn);
    case kTypeF64:
      return op == kExch ? value : add_doubles(old, value, drawn);
  }
  return value;
}

// Replaces *p by f(*p) atomically and returns the old value.
template <class T, class F>
static T update(uint8_t* p, F&& f) {
  T* word = reinterpret_cast<T*>(p);
  T old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (
      !__atomic_compare_exchange_n(word, &old, f(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

static uint64_t update_any(uint8_t* p, bool is_64, AtomicOp op, AtomicType type, uint64_t value,
                           uint64_t expected, uint64_t noise) {
  const auto next = [&](uint64_t old) {
    if (op == kCas) return old == expected ? value : old;
    return combine(op, type, old, value, noise ? noise_of(noise, 0, old, value) : 0);
  };
  if (is_64) return update<uint64_t>(p, next);
  return update<uint32_t>(p, [&](uint32_t old) { return static_cast<uint32_t>(next(old)); });
}

static uint64_t operand(const Row* row, int lane, bool is_64) {
  return row[0].lane[lane] | (is_64 ? uint64_t{row[1].lane[lane]} << 32 : 0);
}

// Like locate; 64-bit words of the local window are not contiguous.
static uint8_t* atomic_place(const Inst* in, Warp* w, Space space, int lane, uint64_t address,
                             uint32_t bytes) {
  const Place place = locate(in, w, space, lane, address, bytes);
  if (place.p && bytes > 4 && place.stride != 4) {
    fault(in, w, FaultKind::kIllegalAddress, lane, "64-bit atomic on local memory");
    return nullptr;
  }
  return place.p;
}

enum AtomicFlags : uint8_t { kReturnSuccess = 2, kGlobalOnly = 4 };  // beside those of access.h

// Whether noise shows: sums of floats are drawn, and so is the order of blocks, which meet in
// global memory.
template <Space kSpace>
static bool is_ordered(AtomicType type) {
  return kSpace != Space::kShared || type == kTypeF32 || type == kTypeF16x2 || type == kTypeF64;
}

// Rows: c the operand (or the expected value), d the new value of a compare-and-swap.
template <Space kSpace>
static const Inst* exec_atomic(const Inst* in, Warp* w, uint32_t exec) {
  const auto op = static_cast<AtomicOp>(in->op);
  const auto type = static_cast<AtomicType>(in->size);
  const bool is_64 = type == kTypeU64 || type == kTypeS64 || type == kTypeF64;
  Addresses where;
  addresses(in, w, kSpace, &where);
  const Row *c = source(w, in->c), *d = source(w, in->d);
  Row low, high;
  uint32_t success = 0;
  const uint64_t launch_noise = w->block->state->noise;
  if (launch_noise && w->block->watch && is_ordered<kSpace>(type)) [[unlikely]] {
    const Watch& watch = *w->block->watch;
    if (watch.journal && !watch.journal->may(Unlike::kOrder)) return conflict(w);
  }
  for (uint32_t left = exec; left; left &= left - 1) {
    const int lane = first_lane(left);
    if (in->flags & kGlobalOnly && where.at[lane] >> 48) continue;  // the code falls back itself
    uint8_t* p = atomic_place(in, w, kSpace, lane, where.at[lane], is_64 ? 8 : 4);
    if (!p) return nullptr;
    const uint64_t first = operand(c, lane, is_64);
    const uint64_t noise = launch_noise ? noise_of(launch_noise, where.at[lane], 0, 0) : 0;
    const uint64_t old = op == kCas
                             ? update_any(p, is_64, op, type, operand(d, lane, is_64), first, 0)
                             : update_any(p, is_64, op, type, first, 0, noise);
    const uint64_t result = in->flags & kReturnSuccess ? old == first : old;
    low.lane[lane] = static_cast<uint32_t>(result);
    high.lane[lane] = static_cast<uint32_t>(result >> 32);
    success |= 1u << lane;
  }
  Row* out = dest(w, in->rd);
  write(out, success, [&](int h) { return load(&low, h); });
  // A 64-bit compare-and-swap reports its success in two registers as well.
  if (is_64) write(out + 1, success, [&](int h) { return load(&high, h); });
  set_pred(w, in->pd0, exec, success);
  return in + 1;
}

// ---- lowering ----------------------------------------------------------------------------------

// A address, B operand or expected value, C uniform base or new value.
static void lower_common(Lowering* l, const Instr& i, Inst* o, uint64_t op, uint64_t type) {
  o->rd = l->rd_row(i);
  o->a = l->row(i.a);
  o->c = l->row(i.b);
  if (op == kCas) {
    o->d = l->row(i.c);
  } else {
    o->b = l->row(i.c);
  }
  o->op = static_cast<uint8_t>(op);
  o->size = static_cast<uint8_t>(type);
  o->offset = i.get_signed(isa::ATOM::OFFSET);
  o->slot = l->new_slot();
}

static void lower_global(Lowering* l, const Instr& i, Inst* o, uint64_t op, bool generic) {
  lower_common(l, i, o, op, i.get(isa::ATOM::TYPE));
  if (generic) l->program()->traits.local = true;
  const bool beside_uniform = op != kCas && i.c.kind == OperandKind::kUReg;
  const uint64_t pair = i.op == Op::RED ? i.get(isa::RED::A64) : i.get(isa::ATOMG::A64);
  const bool wide = beside_uniform ? pair : i.get(isa::ATOM::E);
  o->flags = static_cast<uint8_t>(kWrites | (wide ? kWideAddress : 0) |
                                  (generic && o->size == kTypeF16x2 ? kGlobalOnly : 0));
  o->fn = generic ? exec_atomic<Space::kGeneric> : exec_atomic<Space::kGlobal>;
}

static void lower_ATOM(Lowering* l, const Instr& i, Inst* o) {
  lower_global(l, i, o, i.get(isa::ATOM::OP), true);
}
static void lower_ATOMG(Lowering* l, const Instr& i, Inst* o) {
  lower_global(l, i, o, i.get(isa::ATOMG::OP), false);
}
static void lower_ATOM_CAS(Lowering* l, const Instr& i, Inst* o) {
  lower_global(l, i, o, kCas, true);
}
static void lower_ATOMG_CAS(Lowering* l, const Instr& i, Inst* o) {
  lower_global(l, i, o, kCas, false);
}
static void lower_RED(Lowering* l, const Instr& i, Inst* o) {
  // RED takes generic addresses: a reduction into shared memory through a pointer is legal.
  lower_global(l, i, o, i.get(isa::RED::OP), true);
  o->flags &= static_cast<uint8_t>(~kGlobalOnly);
}

static void lower_shared(Lowering* l, const Instr& i, Inst* o, uint64_t op) {
  lower_common(l, i, o, op, i.get(isa::ATOMS::TYPE));
  const uint64_t scale = i.get(isa::ATOMS::SCALE);
  o->imm = scale ? static_cast<uint32_t>(scale) + 1 : 0;
  o->fn = exec_atomic<Space::kShared>;
}

static void lower_ATOMS(Lowering* l, const Instr& i, Inst* o) {
  lower_shared(l, i, o, i.get(isa::ATOMS::OP));
}
static void lower_ATOMS_CAS(Lowering* l, const Instr& i, Inst* o) {
  lower_shared(l, i, o, kCas);
  if (i.get(isa::ATOMS_CAS::MODE)) o->flags = kReturnSuccess;
}

void register_atomic(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::ATOM, lower_ATOM);
  set(Op::ATOMG, lower_ATOMG);
  set(Op::ATOM_CAS, lower_ATOM_CAS);
  set(Op::ATOMG_CAS, lower_ATOMG_CAS);
  set(Op::RED, lower_RED);
  set(Op::ATOMS, lower_ATOMS);
  set(Op::ATOMS_CAS, lower_ATOMS_CAS);
}

}  // namespace softgpu::exec
