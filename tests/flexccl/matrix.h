// All collectives of one communicator against a sequential reference that adds in the documented
// order. Bitwise.
#ifndef PYFT_TESTS_FLEXCCL_MATRIX_H_
#define PYFT_TESTS_FLEXCCL_MATRIX_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cluster.h"
#include "reduce/reduce.h"

namespace matrix {

using Bytes = std::vector<std::byte>;
inline const std::vector<ncclDataType_t> kTypes = {
    ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,   ncclInt64,      ncclUint64,
    ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
inline const std::vector<ncclDataType_t> kFewTypes = {ncclInt8, ncclBfloat16, ncclFloat32,
                                                      ncclInt64};
constexpr int kPreMul = ncclNumOps;  // stands for an operator made per rank

// Random bits, so that NaN, infinity and subnormal numbers occur too.
inline Bytes random_bytes(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes out(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t bits = random();
    std::memcpy(out.data() + at, &bits, std::min<std::size_t>(8, bytes - at));
  }
  return out;
}

struct Case {
  ncclDataType_t dtype;
  int op;
  std::size_t count;
  bool in_place;
  std::size_t element() const { return flexccl::element_size(dtype); }
  std::size_t bytes() const { return count * element(); }
};

inline std::uint64_t scalar_of(ncclDataType_t dtype) {
  const float three = 3.0f;
  const double three_d = 3.0;
  std::uint64_t bits = 3;
  if (dtype == ncclFloat32) std::memcpy(&bits, &three, sizeof three);
  if (dtype == ncclFloat64) std::memcpy(&bits, &three_d, sizeof three_d);
  if (dtype == ncclFloat16 || dtype == ncclBfloat16) bits = dtype == ncclFloat16 ? 0x4200 : 0x4040;
  if (dtype == ncclFloat8e4m3 || dtype == ncclFloat8e5m2) bits = 0x44;
  return bits;
}

inline flexccl::Reduction reduction_of(const Case& c, int n) {
  if (c.op == ncclAvg) return flexccl::average(c.dtype, n);
  flexccl::Reduction r{.dtype = c.dtype};
  if (c.op == ncclProd) r.combine = flexccl::Combine::kProd;
  if (c.op == ncclMin) r.combine = flexccl::Combine::kMin;
  if (c.op == ncclMax) r.combine = flexccl::Combine::kMax;
  if (c.op == kPreMul) r.premultiplies = true, r.scalar = scalar_of(c.dtype);
  return r;
}

// Elements [at, at + count) of all inputs, summed in the order owner+1, owner+2, ..., owner.
inline Bytes chunk_sum(const std::vector<Bytes>& in, const Case& c, int owner, std::size_t at,
                       std::size_t count) {
  const int n = static_cast<int>(in.size());
  const flexccl::Reduction r = reduction_of(c, n);
  const auto input = [&](int rank) {
    return in[static_cast<std::size_t>(rank % n)].data() + at * c.element();
  };
  Bytes sum(input(owner + 1), input(owner + 1) + count * c.element());
  if (r.premultiplies) flexccl::premultiply(r, sum.data(), sum.data(), count);
  for (int k = 2; k <= n; ++k) flexccl::combine(r, sum.data(), input(owner + k), sum.data(), count);
  flexccl::finish(r, sum.data(), count);
  return sum;
}

inline Bytes all_reduce_reference(const std::vector<Bytes>& in, const Case& c) {
  const std::size_t n = in.size(), unit = 64 / c.element();
  const std::size_t chunk = ((c.count + n - 1) / n + unit - 1) / unit * unit;
  Bytes out;
  for (std::size_t owner = 0; owner < n; ++owner) {
    const std::size_t at = std::min(c.count, owner * chunk);
    const Bytes part = chunk_sum(in, c, static_cast<int>(owner), at, std::min(chunk, c.count - at));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// Buffers of one collective on all ranks: input, output, and what the output has to be.
struct Trial {
  Case what;
  std::string name;
  std::vector<Bytes> in, out, expected;  // in place: `out` holds the input too
  std::vector<ncclRedOp_t> ops;
};

inline void report(const Trial& trial, int n) {
  for (std::size_t r = 0; r < trial.out.size(); ++r) {
    if (trial.out[r] == trial.expected[r]) continue;
    std::cerr << trial.name << " rank " << r << " of " << n << " dtype " << trial.what.dtype
              << " op " << trial.what.op << " count " << trial.what.count << " in place "
              << trial.what.in_place << "\n";
    CHECK(!"differs from the reference");
    return;
  }
}

class Matrix {
 public:
  Matrix(int n, flexcclTransport_t transport, unsigned seed = 0)
      : cluster_(n, transport, 60000), n_(n), seed_(seed) {}

  void reductions(std::size_t count, std::initializer_list<int> ops,
                  const std::vector<ncclDataType_t>& types = kTypes) {
    for (const int op : ops)
      for (const ncclDataType_t dtype : types) {
        std::vector<std::unique_ptr<Trial>> trials;
        for (const bool in_place : {false, true}) {
          const Case c{dtype, op, count, in_place};
          trials.push_back(all_reduce(c));
          trials.push_back(reduce_scatter(c));
          trials.push_back(reduce(c, (n_ - 1) / 2));
        }
        cluster_.synchronize();
        for (const auto& trial : trials) report(*trial, n_);
        for (const auto& trial : trials) drop_ops(*trial);
      }
  }

  void moves(ncclDataType_t dtype, std::size_t count) {
    std::vector<std::unique_ptr<Trial>> trials;
    for (const bool in_place : {false, true}) {
      const Case c{dtype, 0, count, in_place};
      for (const char* name : {"broadcast", "all-gather", "gather", "scatter", "all-to-all", "p2p"})
        if (!in_place || std::strcmp(name, "all-to-all") || !count)
          trials.push_back(move(c, name, n_ / 2));
    }
    cluster_.synchronize();
    for (const auto& trial : trials) report(*trial, n_);
  }

 private:
  std::unique_ptr<Trial> make(const Case& c, const char* name, std::size_t in_blocks) {
    auto trial = std::make_unique<Trial>(Trial{c, name, {}, {}, {}, {}});
    for (int r = 0; r < n_; ++r) {
      trial->in.push_back(random_bytes(c.bytes() * in_blocks, ++seed_));
      trial->ops.push_back(static_cast<ncclRedOp_t>(c.op));
      std::uint64_t scalar = scalar_of(c.dtype);
      if (c.op == kPreMul)
        CHECK_EQ(ncclRedOpCreatePreMulSum(&trial->ops.back(), &scalar, c.dtype,
                                          ncclScalarHostImmediate, cluster_.at(r)),
                 ncclSuccess);
    }
    return trial;
  }
  void drop_ops(const Trial& trial) {
    if (trial.what.op != kPreMul) return;
    for (int r = 0; r < n_; ++r)
      CHECK_EQ(ncclRedOpDestroy(trial.ops[static_cast<std::size_t>(r)], cluster_.at(r)),
               ncclSuccess);
  }

  std::unique_ptr<Trial> all_reduce(const Case& c) {
    auto trial = make(c, "all-reduce", 1);
    trial->expected.assign(trial->in.size(), all_reduce_reference(trial->in, c));
    trial->out = trial->in;
    cluster_.run([&](int r) {
      const auto i = static_cast<std::size_t>(r);
      const Bytes& from = c.in_place ? trial->out[i] : trial->in[i];
      return ncclAllReduce(from.data(), trial->out[i].data(), c.count, c.dtype, trial->ops[i],
                           cluster_.at(r), nullptr);
    });
    return trial;
  }

  std::unique_ptr<Trial> reduce_scatter(const Case& c) {
    auto trial = make(c, "reduce-scatter", static_cast<std::size_t>(n_));
    trial->out = trial->in;
    trial->expected = trial->in;  // all but the own block stays as it was
    for (std::size_t r = 0; r < trial->in.size(); ++r) {
      const Bytes sum = chunk_sum(trial->in, c, static_cast<int>(r), r * c.count, c.count);
      std::copy(sum.begin(), sum.end(),
                trial->expected[r].begin() + static_cast<std::ptrdiff_t>(r * c.bytes()));
    }
    cluster_.run([&](int r) {
      const auto i = static_cast<std::size_t>(r);
      const Bytes& from = c.in_place ? trial->out[i] : trial->in[i];
      return ncclReduceScatter(from.data(), trial->out[i].data() + i * c.bytes(), c.count, c.dtype,
                               trial->ops[i], cluster_.at(r), nullptr);
    });
    return trial;
  }

  std::unique_ptr<Trial> reduce(const Case& c, int root) {
    auto trial = make(c, "reduce", 1);
    trial->out = trial->expected = trial->in;
    trial->expected[static_cast<std::size_t>(root)] = chunk_sum(trial->in, c, root, 0, c.count);
    cluster_.run([&](int r) {
      const auto i = static_cast<std::size_t>(r);
      const Bytes& from = c.in_place ? trial->out[i] : trial->in[i];
      return ncclReduce(from.data(), r == root ? trial->out[i].data() : nullptr, c.count, c.dtype,
                        trial->ops[i], root, cluster_.at(r), nullptr);
    });
    return trial;
  }

  // Copies block `from` of one rank's input to block `to` of another's expected output.
  void expect(Trial* trial, std::size_t source, std::size_t from, std::size_t rank,
              std::size_t to) {
    const std::size_t bytes = trial->what.bytes();
    std::copy_n(trial->in[source].begin() + static_cast<std::ptrdiff_t>(from * bytes), bytes,
                trial->expected[rank].begin() + static_cast<std::ptrdiff_t>(to * bytes));
  }

  std::unique_ptr<Trial> move(const Case& c, const std::string& name, int root_rank) {
    const auto n = static_cast<std::size_t>(n_), root = static_cast<std::size_t>(root_rank);
    auto trial = make(c, name.c_str(), n);
    trial->out = trial->expected = trial->in;
    for (std::size_t r = 0; r < n; ++r) {
      if (name == "broadcast") expect(trial.get(), root, 0, r, 0);
      if (name == "scatter") expect(trial.get(), root, r, r, c.in_place && r == root ? root : 0);
      if (name == "p2p") expect(trial.get(), (r + n - 1) % n, 0, r, n - 1);
      for (std::size_t k = 0; k < n; ++k) {
        if (name == "all-gather") expect(trial.get(), k, c.in_place ? k : 0, r, k);
        if (name == "gather" && r == root)
          expect(trial.get(), k, c.in_place && k == root ? k : 0, r, k);
        if (name == "all-to-all") expect(trial.get(), k, r, r, k);
      }
    }
    cluster_.run([&](int r) { return move_call(trial.get(), r, root_rank); });
    return trial;
  }

  ncclResult_t move_call(Trial* trial, int r, int root) {
    const Case& c = trial->what;
    const auto i = static_cast<std::size_t>(r);
    const std::byte* in = c.in_place ? trial->out[i].data() : trial->in[i].data();
    std::byte* out = trial->out[i].data();
    const std::size_t own = i * c.bytes();
    const bool at_root = c.in_place && r == root;
    ncclComm_t comm = cluster_.at(r);
    if (trial->name == "broadcast")
      return ncclBroadcast(in, out, c.count, c.dtype, root, comm, nullptr);
    if (trial->name == "all-gather")
      return ncclAllGather(in + (c.in_place ? own : 0), out, c.count, c.dtype, comm, nullptr);
    if (trial->name == "gather")
      return ncclGather(in + (at_root ? own : 0), out, c.count, c.dtype, root, comm, nullptr);
    if (trial->name == "scatter")
      return ncclScatter(in, out + (at_root ? own : 0), c.count, c.dtype, root, comm, nullptr);
    if (trial->name == "all-to-all") return ncclAlltoAll(in, out, c.count, c.dtype, comm, nullptr);
    const std::size_t last = static_cast<std::size_t>(n_ - 1) * c.bytes();
    ncclSend(trial->in[i].data(), c.count, c.dtype, (r + 1) % n_, comm, nullptr);
    return ncclRecv(out + last, c.count, c.dtype, (r + n_ - 1) % n_, comm, nullptr);
  }

  Cluster cluster_;
  int n_;
  unsigned seed_;
};

}  // namespace matrix

#endif  // PYFT_TESTS_FLEXCCL_MATRIX_H_
