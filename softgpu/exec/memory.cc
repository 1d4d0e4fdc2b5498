// Loads and stores: LDG STG LD ST LDS STS LDL STL LDC LDSM QSPC.
#include "exec/access.h"

namespace softgpu::exec {

// ---- moving elements between rows and memory ---------------------------------------------------

constexpr int row_count(int size) {
  return size < k32 ? 1 : static_cast<int>(size_bytes(size) / 4);
}

static uint32_t read_small(const uint8_t* p, int size) {
  switch (size) {
    case kU8:
      return *p;
    case kS8:
      return static_cast<uint32_t>(static_cast<int8_t>(*p));
    default: {
      uint16_t v;
      std::memcpy(&v, p, 2);
      return size == kU16 ? v : static_cast<uint32_t>(static_cast<int16_t>(v));
    }
  }
}

static VU load_memory(const uint8_t* p) {
  VU v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <int kSize>
static void read_sequence(const uint8_t* p, Row* out) {
  if constexpr (kSize < k32) {
    for (int i = 0; i < kLanes; ++i) {
      out->lane[i] = read_small(p + i * size_bytes(kSize), kSize);
    }
    return;
  }
  constexpr int kWords = size_bytes(kSize) / 4;
  for (int h = 0; h < 2; ++h) {
    VU z[kWords], r[kWords];
    for (int k = 0; k < kWords; ++k) z[k] = load_memory(p + (kWords * h + k) * sizeof(VU));
    if constexpr (kWords == 1) r[0] = z[0];
    if constexpr (kWords == 2) split2(z, &r[0], &r[1]);
    if constexpr (kWords == 4) split4(z, r);
    for (int k = 0; k < kWords; ++k) store(out + k, h, r[k]);
  }
}

template <int kSize>
static void write_sequence(uint8_t* p, const Row* in) {
  if constexpr (size_bytes(kSize) == 1) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(in->lane[i]);
    return;
  }
  if constexpr (size_bytes(kSize) == 2) {
    auto* halves = reinterpret_cast<uint16_t*>(p);
    for (int i = 0; i < kLanes; ++i) halves[i] = static_cast<uint16_t>(in->lane[i]);
    return;
  }
  constexpr int kWords = size_bytes(kSize) < 4 ? 1 : size_bytes(kSize) / 4;
  for (int h = 0; h < 2; ++h) {
    VU z[kWords], r[kWords];
    for (int k = 0; k < kWords; ++k) r[k] = load(in + k, h);
    if constexpr (kWords == 1) z[0] = r[0];
    if constexpr (kWords == 2) join2(r[0], r[1], z);
    if constexpr (kWords == 4) join4(r, z);
    for (int k = 0; k < kWords; ++k) {
      std::memcpy(p + (kWords * h + k) * sizeof(VU), &z[k], sizeof(VU));
    }
  }
}

template <int kSize>
static void read_lane(const Place& place, int lane, Row* out) {
  if constexpr (kSize < k32) {
    out->lane[lane] = read_small(place.p, kSize);
  } else {
    for (uint32_t k = 0; k < size_bytes(kSize) / 4; ++k) {
      std::memcpy(&out[k].lane[lane], place.p + k * place.stride, 4);
    }
  }
}

template <int kSize>
static void write_lane(const Place& place, int lane, const Row* in) {
  if constexpr (kSize < k32) {
    std::memcpy(place.p, &in->lane[lane], size_bytes(kSize));  // little endian: low bytes first
  } else {
    for (uint32_t k = 0; k < size_bytes(kSize) / 4; ++k) {
      std::memcpy(place.p + k * place.stride, &in[k].lane[lane], 4);
    }
  }
}

template <int kRows>
static void write_rows(Row* d, uint32_t exec, const Row* from) {
  for (int k = 0; k < kRows; ++k) write(d + k, exec, [&](int h) { return load(from + k, h); });
}

// ---- loads -------------------------------------------------------------------------------------

static VU gather(const uint8_t* p, VU offsets, uint32_t mask16) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), static_cast<__mmask16>(mask16),
                                            as<__m512i>(offsets), p, 1));
#else
  VU r = splat(0);
  for (int i = 0; i < kHalf; ++i) {
    uint32_t word = 0;
    if (mask16 >> i & 1) std::memcpy(&word, p + offsets[i], 4);
    r[i] = word;
  }
  return r;
#endif
}

// Sixteen elements of four words, one after the other: much less work than gathering words.
static void load_quads(const uint8_t* p, const Row* offsets, int half, VU* r) {
  struct alignas(64) {
    uint8_t bytes[kHalf][16];
  } found;
  const uint32_t* at = offsets->lane + kHalf * half;
  for (int i = 0; i < kHalf; ++i) std::memcpy(found.bytes[i], p + at[i], 16);
  VU z[4];
  std::memcpy(z, &found, sizeof z);
  split4(z, r);
}

// All lanes are known to be in range.
template <int kSize>
static void load_checked(const uint8_t* p, const Row* offsets, uint32_t exec, Row* d) {
  if constexpr (kSize == k128) {
    VU r[2][4];
    for (int h = 0; h < 2; ++h) load_quads(p, offsets, h, r[h]);
    for (int k = 0; k < 4; ++k) write(d + k, exec, [&](int h) { return r[h][k]; });
  } else if constexpr (kSize >= k32) {
    for (int k = 0; k < row_count(kSize); ++k) {
      write(d + k, exec,
            [&](int h) { return gather(p + 4 * k, load(offsets, h), half_mask(exec, h)); });
    }
  } else {
    for_lanes(exec, [&](int lane) { d->lane[lane] = read_small(p + offsets->lane[lane], kSize); });
  }
}

template <Space kSpace, int kSize>
static const Inst* load_scattered(const Inst* in, Warp* w, uint32_t exec) {
  if constexpr (kSpace != Space::kLocal) {
    Row offsets;
    if (const uint8_t* p = locate_scattered(in, w, kSpace, exec, size_bytes(kSize), &offsets)) {
      load_checked<kSize>(p, &offsets, exec, dest(w, in->rd));
      return in + 1;
    }
  }
  Addresses where;
  addresses(in, w, kSpace, &where);
  while (exec) {
    const int lane = first_lane(exec);
    const Place place = locate(in, w, kSpace, lane, where.at[lane], size_bytes(kSize));
    if (!place.p) return nullptr;
    read_lane<kSize>(place, lane, dest(w, in->rd));
    exec &= exec - 1;
  }
  return in + 1;
}

template <Space kSpace, int kSize>
static const Inst* exec_load(const Inst* in, Warp* w, uint32_t exec) {
  constexpr int kRows = row_count(kSize);
  constexpr uint32_t kBytes = size_bytes(kSize);
  uint64_t base = 0;
  const Pattern shape = pattern(in, w, kSpace, exec, kBytes, &base);
  if (shape == Pattern::kScattered) return load_scattered<kSpace, kSize>(in, w, exec);
  const bool sequence = shape == Pattern::kSequence;
  const uint8_t* p = locate_span(in, w, kSpace, base, sequence ? kLanes * kBytes : kBytes, kBytes);
  if (!p) return load_scattered<kSpace, kSize>(in, w, exec);
  if (sequence && kSize == k32) {
    write(dest(w, in->rd), exec, [&](int h) {
      VU v;
      std::memcpy(&v, p + h * sizeof v, sizeof v);
      return v;
    });
    return in + 1;
  }
  Row out[kRows];
  if (sequence) {
    read_sequence<kSize>(p, out);
  } else {
    read_lane<kSize>({const_cast<uint8_t*>(p), 4}, 0, out);
    for (Row& row : out) {
      for (int h = 1; h >= 0; --h) store(&row, h, splat(row.lane[0]));
    }
  }
  write_rows<kRows>(dest(w, in->rd), exec, out);
  return in + 1;
}

// All lanes at the same offset of their own windows: the words lie in rows.
template <int kSize>
static const Inst* exec_LDL(const Inst* in, Warp* w, uint32_t exec) {
  uint64_t base = 0;
  if (kSize < k32 || pattern(in, w, Space::kLocal, exec, 0, &base) == Pattern::kScattered ||
      base & (size_bytes(kSize) - 1) || base + size_bytes(kSize) > w->block->state->local_bytes) {
    return load_scattered<Space::kLocal, kSize>(in, w, exec);
  }
  const Row* rows = reinterpret_cast<const Row*>(w->local) + base / 4;
  write_rows<row_count(kSize)>(dest(w, in->rd), exec, rows);
  return in + 1;
}

// ---- stores ------------------------------------------------------------------------------------

template <Space kSpace, int kSize>
static const Inst* store_scattered(const Inst* in, Warp* w, uint32_t exec) {
  const Row* data = source(w, in->c);
  if constexpr (kSpace != Space::kLocal) {
    Row offsets;
    if (uint8_t* p = locate_scattered(in, w, kSpace, exec, size_bytes(kSize), &offsets)) {
      for_lanes(exec,
                [&](int lane) { write_lane<kSize>({p + offsets.lane[lane], 4}, lane, data); });
      return in + 1;
    }
  }
  Addresses where;
  addresses(in, w, kSpace, &where);
  for (; exec; exec &= exec - 1) {
    const int lane = first_lane(exec);
    const Place place = locate(in, w, kSpace, lane, where.at[lane], size_bytes(kSize));
    if (!place.p) return nullptr;
    write_lane<kSize>(place, lane, data);
  }
  return in + 1;
}

template <Space kSpace, int kSize>
static const Inst* exec_store(const Inst* in, Warp* w, uint32_t exec) {
  constexpr uint32_t kBytes = size_bytes(kSize);
  uint64_t base = 0;
  if (exec != kFull || pattern(in, w, kSpace, exec, kBytes, &base) != Pattern::kSequence) {
    return store_scattered<kSpace, kSize>(in, w, exec);
  }
  uint8_t* p = locate_span(in, w, kSpace, base, kLanes * kBytes, kBytes);
  if (!p) return store_scattered<kSpace, kSize>(in, w, exec);
  write_sequence<kSize>(p, source(w, in->c));
  return in + 1;
}

template <int kSize>
static const Inst* exec_STL(const Inst* in, Warp* w, uint32_t exec) {
  uint64_t base = 0;
  if (kSize < k32 || pattern(in, w, Space::kLocal, exec, 0, &base) == Pattern::kScattered ||
      base & (size_bytes(kSize) - 1) || base + size_bytes(kSize) > w->block->state->local_bytes) {
    return store_scattered<Space::kLocal, kSize>(in, w, exec);
  }
  w->local_clean = std::min(w->local_clean, static_cast<uint32_t>(base / 4));
  Row* rows = reinterpret_cast<Row*>(w->local) + base / 4;
  write_rows<row_count(kSize)>(rows, exec, source(w, in->c));
  return in + 1;
}

// ---- lowering ----------------------------------------------------------------------------------

template <Space kSpace>
static Handler pick_load(uint64_t size) {
  static constexpr Handler kHandlers[] = {exec_load<kSpace, kU8>,  exec_load<kSpace, kS8>,
                                          exec_load<kSpace, kU16>, exec_load<kSpace, kS16>,
                                          exec_load<kSpace, k32>,  exec_load<kSpace, k64>,
                                          exec_load<kSpace, k128>, exec_load<kSpace, k128>};
  return kHandlers[size];
}

template <Space kSpace>
static Handler pick_store(uint64_t size) {
  static constexpr Handler kHandlers[] = {exec_store<kSpace, kU8>,  exec_store<kSpace, kS8>,
                                          exec_store<kSpace, kU16>, exec_store<kSpace, kS16>,
                                          exec_store<kSpace, k32>,  exec_store<kSpace, k64>,
                                          exec_store<kSpace, k128>, exec_store<kSpace, k128>};
  return kHandlers[size];
}

static Handler pick_LDL(uint64_t size) {
  static constexpr Handler kHandlers[] = {exec_LDL<kU8>,  exec_LDL<kS8>, exec_LDL<kU16>,
                                          exec_LDL<kS16>, exec_LDL<k32>, exec_LDL<k64>,
                                          exec_LDL<k128>, exec_LDL<k128>};
  return kHandlers[size];
}

static Handler pick_STL(uint64_t size) {
  static constexpr Handler kHandlers[] = {exec_STL<kU8>,  exec_STL<kS8>, exec_STL<kU16>,
                                          exec_STL<kS16>, exec_STL<k32>, exec_STL<k64>,
                                          exec_STL<k128>, exec_STL<k128>};
  return kHandlers[size];
}

// A address, B data, C uniform base in the decoded form; rows a, c, b here.
static void lower_address(Lowering* l, const Instr& i, Inst* o, bool wide, int64_t offset) {
  o->rd = l->rd_row(i);
  o->a = l->row(i.a);
  o->b = l->row(i.c);
  o->c = l->row(i.b);
  o->flags = wide ? kWideAddress : 0;
  o->offset = offset;
  o->slot = l->new_slot();
}

// Without a uniform base the address is a pair where .E is set; beside one, A64 tells.
static bool is_wide(const Instr& i) {
  const bool beside_uniform = i.c.kind == OperandKind::kUReg;
  return beside_uniform ? i.get(isa::STG::A64) : i.get(isa::STG::E);
}

static void lower_LDG(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, is_wide(i), i.get_signed(isa::LDG::OFFSET));
  o->fn = pick_load<Space::kGlobal>(i.get(isa::LDG::SIZE));
}

static void lower_STG(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, is_wide(i), i.get_signed(isa::STG::OFFSET));
  o->flags |= kWrites;
  o->fn = pick_store<Space::kGlobal>(i.get(isa::STG::SIZE));
}

static int64_t generic_offset(const Instr& i) {
  return i.c.kind == OperandKind::kUReg ? i.get_signed(isa::LD::OFFSET)
                                        : i.get_signed(isa::LD::OFFSET32);
}

static void lower_LD(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, is_wide(i), generic_offset(i));
  l->program()->traits.local = true;
  o->fn = pick_load<Space::kGeneric>(i.get(isa::LD::SIZE));
}

static void lower_ST(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, is_wide(i), generic_offset(i));
  l->program()->traits.local = true;
  o->flags |= kWrites;
  o->fn = pick_store<Space::kGeneric>(i.get(isa::ST::SIZE));
}

static void lower_LDS(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, false, i.get_signed(isa::LDS::OFFSET));
  const uint64_t scale = i.get(isa::LDS::SCALE);
  o->imm = scale ? static_cast<uint32_t>(scale) + 1 : 0;
  o->fn = pick_load<Space::kShared>(i.get(isa::LDS::SIZE));
}

static void lower_STS(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, false, i.get_signed(isa::STS::OFFSET));
  const uint64_t scale = i.get(isa::STS::SCALE);
  o->imm = scale ? static_cast<uint32_t>(scale) + 1 : 0;
  o->fn = pick_store<Space::kShared>(i.get(isa::STS::SIZE));
}

static void lower_LDL(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, false, i.get_signed(isa::LDL::OFFSET));
  l->program()->traits.local = true;
  o->fn = pick_LDL(i.get(isa::LDL::SIZE));
}

static void lower_STL(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, false, i.get_signed(isa::STL::OFFSET));
  l->program()->traits.local = true;
  o->fn = pick_STL(i.get(isa::STL::SIZE));
}

// ---- constant banks with an index register -----------------------------------------------------

template <int kSize>
static const Inst* exec_LDC(const Inst* in, Warp* w, uint32_t exec) {
  const Row* a = source(w, in->a);
  constexpr int kRows = row_count(kSize);
  Row out[kRows];
  const uint32_t index = a->lane[first_lane(exec)];
  const uint32_t same = test([&](int h) { return load(a, h) == index; });
  if ((same & exec) == exec) {
    uint8_t bytes[16];
    read_constant(w, in->op, index + in->imm, bytes, size_bytes(kSize));
    read_lane<kSize>({bytes, 4}, 0, out);
    for (int k = 0; k < kRows; ++k) {
      write(dest(w, in->rd) + k, exec, [&](int) { return splat(out[k].lane[0]); });
    }
    return in + 1;
  }
  for_lanes(exec, [&](int lane) {
    uint8_t bytes[16];
    read_constant(w, in->op, a->lane[lane] + in->imm, bytes, size_bytes(kSize));
    read_lane<kSize>({bytes, 4}, lane, out);
  });
  write_rows<kRows>(dest(w, in->rd), exec, out);
  return in + 1;
}

static void lower_constant(Lowering* l, const Instr& i, Inst* o, uint64_t size) {
  static constexpr Handler kHandlers[] = {exec_LDC<kU8>,  exec_LDC<kS8>, exec_LDC<kU16>,
                                          exec_LDC<kS16>, exec_LDC<k32>, exec_LDC<k64>};
  o->rd = l->rd_row(i);
  o->op = i.b.bank;
  o->imm = i.b.value;
  o->a = l->register_row(i.b.index);
  if (i.rd_uniform) {  // ULDC: bit 91 tells whether there is an index, in a uniform register
    const bool indexed = i.word.bits(91, 1);
    o->a = l->uniform_row(indexed ? i.b.index : kURZ);
    if (!indexed) o->imm &= 0xffff;
  }
  o->fn = kHandlers[size];
}

static void lower_LDC(Lowering* l, const Instr& i, Inst* o) {
  lower_constant(l, i, o, i.get(isa::LDC::SIZE));
}

static void lower_ULDC(Lowering* l, const Instr& i, Inst* o) {
  lower_constant(l, i, o, i.get(isa::ULDC::SIZE));
  o->force = kFull;
}

// ---- LDSM --------------------------------------------------------------------------------------

// Lane 8k + r gives the address of row r of matrix k; lane l receives columns 2(l%4), 2(l%4)+1 of
// row l/4 (transposed: rows 2(l%4), 2(l%4)+1 of column l/4).
static const Inst* exec_LDSM(const Inst* in, Warp* w, uint32_t exec) {
  const bool transposed = in->op;
  Addresses where;
  addresses(in, w, Space::kShared, &where);
  Row out[4];
  for (int matrix = 0; matrix < in->size; ++matrix) {
    uint16_t m[8][8];
    for (int r = 0; r < 8; ++r) {
      const int lane = 8 * matrix + r;
      const Place place = locate(in, w, Space::kShared, lane, where.at[lane], 16);
      if (!place.p) return nullptr;
      std::memcpy(m[r], place.p, 16);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const int i = lane / 4, j = 2 * (lane % 4);
      const uint16_t low = transposed ? m[j][i] : m[i][j];
      const uint16_t high = transposed ? m[j + 1][i] : m[i][j + 1];
      out[matrix].lane[lane] = low | uint32_t{high} << 16;
    }
  }
  for (int matrix = 0; matrix < in->size; ++matrix) {
    write(dest(w, in->rd) + matrix, exec, [&](int h) { return load(out + matrix, h); });
  }
  return in + 1;
}

static void lower_LDSM(Lowering* l, const Instr& i, Inst* o) {
  lower_address(l, i, o, false, i.get_signed(isa::LDSM::OFFSET));
  o->size = static_cast<uint8_t>(1u << i.get(isa::LDSM::COUNT));
  o->op = static_cast<uint8_t>(i.get(isa::LDSM::TRANS));
  o->fn = exec_LDSM;
}

// ---- QSPC --------------------------------------------------------------------------------------

static const Inst* exec_QSPC(const Inst* in, Warp* w, uint32_t exec) {
  Addresses where;
  addresses(in, w, Space::kGeneric, &where);
  constexpr uint32_t kWindow[] = {0, kLocalWindow >> 48, kSharedWindow >> 48, 0xffff};
  uint32_t inside = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (where.at[lane] >> 48 == kWindow[in->op]) inside |= 1u << lane;
  }
  set_pred(w, in->pd0, exec, inside);
  return in + 1;
}

static void lower_QSPC(Lowering* l, const Instr& i, Inst* o) {
  o->a = l->row(i.a);
  o->b = l->row(i.c);
  const bool beside_uniform = i.c.kind == OperandKind::kUReg;
  o->flags = !beside_uniform || i.get(isa::QSPC::A64) ? kWideAddress : 0;
  o->offset = i.get_signed(isa::QSPC::OFFSET);
  o->op = static_cast<uint8_t>(i.get(isa::QSPC::SPACE));
  o->fn = exec_QSPC;
}

void register_memory(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::LDG, lower_LDG);
  set(Op::STG, lower_STG);
  set(Op::LD, lower_LD);
  set(Op::ST, lower_ST);
  set(Op::LDS, lower_LDS);
  set(Op::STS, lower_STS);
  set(Op::LDL, lower_LDL);
  set(Op::STL, lower_STL);
  set(Op::LDC, lower_LDC);
  set(Op::ULDC, lower_ULDC);
  set(Op::LDSM, lower_LDSM);
  set(Op::QSPC, lower_QSPC);
}

}  // namespace softgpu::exec
