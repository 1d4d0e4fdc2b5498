// All collectives of one communicator against a sequential reference that adds in the documented
// order. Bitwise. Order and routing are independent of the product, the arithmetic of an element is
// its own (reference.h): reduce_test.cc checks that independently.
#ifndef PYFT_TESTS_FLEXCCL_MATRIX_H_
#define PYFT_TESTS_FLEXCCL_MATRIX_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster.h"
#include "reference.h"

namespace matrix {

// Buffers of one collective on all ranks, and what the outputs have to be. In place, `out` holds
// the input too. Inputs and expected results may be shared: of one size and type they are the same.
struct Trial {
  Case what;
  std::string name;
  std::shared_ptr<const std::vector<Bytes>> in;
  std::vector<Bytes> out;
  std::function<void(std::size_t rank, Bytes* out)> expect = {};  // given: the output before
  std::vector<ncclRedOp_t> ops = {};
};

// Says where a trial differs from what it has to be, if it does.
inline bool report(Trial& trial) {
  for (std::size_t r = 0; r < trial.out.size(); ++r) {
    Bytes expected = (*trial.in)[r];
    trial.expect(r, &expected);
    if (std::memcmp(trial.out[r].data(), expected.data(), expected.size()) == 0) continue;
    std::cerr << trial.name << " rank " << r << " of " << trial.out.size() << " dtype "
              << trial.what.dtype << " op " << trial.what.op << " count " << trial.what.count
              << " in place " << trial.what.in_place << "\n";
    CHECK(!"differs from the reference");
    return false;
  }
  return true;
}

// One world: a communicator over one transport, and all collectives in it.
class Matrix {
 public:
  Matrix(int n, flexcclTransport_t transport, unsigned seed = 0)
      : cluster_(n, transport, 60000), n_(n), seed_(seed) {}

  // How many of the collectives below were compared so far, each in place and out of place.
  std::size_t done() const { return done_; }

  void reductions(std::size_t count, std::initializer_list<int> ops,
                  const std::vector<ncclDataType_t>& types = kTypes) {
    for (const int op : ops)
      for (const ncclDataType_t dtype : types) {
        const Case c{dtype, op, count, false};
        all_reduce(c), reduce_scatter(c), reduce(c, (n_ - 1) / 2);
        settle();
      }
  }

  void moves(ncclDataType_t dtype, std::size_t count) {
    for (const char* name : kMoves) move({dtype, 0, count, false}, name, n_ / 2);
    settle();
  }

  // With buffers of `bytes` on every rank, one collective after the other: memory is short.
  void large_reductions(std::size_t bytes, int op, ncclDataType_t dtype) {
    const std::size_t count = bytes / flexccl::element_size(dtype);
    const Case whole{dtype, op, count, false}, block{dtype, op, per_rank(count), false};
    all_reduce(whole), settle();
    reduce_scatter(block), settle();
    reduce(whole, n_ - 1), settle();
  }
  void large_moves(std::size_t bytes, ncclDataType_t dtype) {
    const std::size_t count = per_rank(bytes / flexccl::element_size(dtype));
    for (const char* name : kMoves) move({dtype, 0, count, false}, name, 0), settle();
  }

 private:
  static constexpr const char* kMoves[] = {"broadcast", "all-gather", "gather",
                                           "scatter",   "all-to-all", "p2p"};
  using Inputs = std::shared_ptr<const std::vector<Bytes>>;
  using Call = std::function<ncclResult_t(Trial&, std::size_t rank)>;

  std::size_t per_rank(std::size_t count) const {
    return (count + static_cast<std::size_t>(n_) - 1) / static_cast<std::size_t>(n_);
  }

  Inputs inputs(const Case& c, std::size_t blocks) {
    auto in = std::make_shared<std::vector<Bytes>>();
    for (int r = 0; r < n_; ++r) in->push_back(random_bytes(c.bytes() * blocks, ++seed_));
    return in;
  }

  // Out of place, then in place, if that exists.
  void run(Case c, const char* name, const Inputs& in, const Call& call,
           const std::function<void(Case, std::size_t, Bytes*)>& expect) {
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      if (in_place && c.count && !std::strcmp(name, "all-to-all")) return;
      auto trial = std::make_unique<Trial>(Trial{c, name, in, *in});
      trial->expect = [c, expect](std::size_t rank, Bytes* out) { expect(c, rank, out); };
      make_ops(trial.get());
      cluster_.run([&](int r) { return call(*trial, static_cast<std::size_t>(r)); });
      trials_.push_back(std::move(trial));
    }
  }

  void make_ops(Trial* trial) {
    for (int r = 0; r < n_; ++r) {
      trial->ops.push_back(static_cast<ncclRedOp_t>(trial->what.op));
      std::uint64_t scalar = scalar_of(trial->what.dtype);
      if (trial->what.op == kPreMul)
        CHECK_EQ(ncclRedOpCreatePreMulSum(&trial->ops.back(), &scalar, trial->what.dtype,
                                          ncclScalarHostImmediate, cluster_.at(r)),
                 ncclSuccess);
    }
  }

  // Waits for all that was begun, and compares it.
  void settle() {
    cluster_.synchronize();
    for (const auto& trial : trials_) {
      done_ += report(*trial);
      if (trial->what.op != kPreMul) continue;
      for (int r = 0; r < n_; ++r)
        CHECK_EQ(ncclRedOpDestroy(trial->ops[static_cast<std::size_t>(r)], cluster_.at(r)),
                 ncclSuccess);
    }
    trials_.clear();
  }

  static const std::byte* from(const Trial& trial, std::size_t rank) {
    return trial.what.in_place ? trial.out[rank].data() : (*trial.in)[rank].data();
  }

  void all_reduce(const Case& c) {
    const Inputs in = inputs(c, 1);
    const auto sum = std::make_shared<Bytes>(all_reduce_reference(*in, c));
    run(
        c, "all-reduce", in,
        [this](Trial& t, std::size_t r) {
          return ncclAllReduce(from(t, r), t.out[r].data(), t.what.count, t.what.dtype, t.ops[r],
                               cluster_.at(static_cast<int>(r)), nullptr);
        },
        [sum](Case, std::size_t, Bytes* out) { *out = *sum; });
  }

  void reduce_scatter(const Case& c) {
    const Inputs in = inputs(c, static_cast<std::size_t>(n_));
    run(
        c, "reduce-scatter", in,
        [this](Trial& t, std::size_t r) {
          return ncclReduceScatter(from(t, r), t.out[r].data() + r * t.what.bytes(), t.what.count,
                                   t.what.dtype, t.ops[r], cluster_.at(static_cast<int>(r)),
                                   nullptr);
        },
        [in](Case what, std::size_t r, Bytes* out) {  // all but the own block stays as it was
          const Bytes sum = chunk_sum(*in, what, static_cast<int>(r), r * what.count, what.count);
          std::copy(sum.begin(), sum.end(), at(out, r * what.bytes()));
        });
  }

  void reduce(const Case& c, int root) {
    const Inputs in = inputs(c, 1);
    run(
        c, "reduce", in,
        [this, root](Trial& t, std::size_t r) {
          const int rank = static_cast<int>(r);
          return ncclReduce(from(t, r), rank == root ? t.out[r].data() : nullptr, t.what.count,
                            t.what.dtype, t.ops[r], root, cluster_.at(rank), nullptr);
        },
        [in, root](Case what, std::size_t r, Bytes* out) {
          if (static_cast<int>(r) == root) *out = chunk_sum(*in, what, root, 0, what.count);
        });
  }

  static Bytes::iterator at(Bytes* bytes, std::size_t offset) {
    return bytes->begin() + static_cast<std::ptrdiff_t>(offset);
  }

  void move(const Case& c, const std::string& name, int root_rank) {
    const auto n = static_cast<std::size_t>(n_), root = static_cast<std::size_t>(root_rank);
    const Inputs in = inputs(c, n);
    run(
        c, name.c_str(), in,
        [this, root_rank](Trial& t, std::size_t r) {
          return move_call(&t, static_cast<int>(r), root_rank);
        },
        [in, name, n, root](Case what, std::size_t r, Bytes* out) {
          // Block `from` of one rank's input becomes block `to` of this one's output.
          const auto block = [&](std::size_t source, std::size_t from, std::size_t to) {
            const std::size_t bytes = what.bytes();
            std::copy_n((*in)[source].data() + from * bytes, bytes, out->data() + to * bytes);
          };
          if (name == "broadcast") block(root, 0, 0);
          if (name == "scatter") block(root, r, what.in_place && r == root ? root : 0);
          if (name == "p2p") block((r + n - 1) % n, 0, n - 1);
          for (std::size_t k = 0; k < n; ++k) {
            if (name == "all-gather") block(k, what.in_place ? k : 0, k);
            if (name == "gather" && r == root) block(k, what.in_place && k == root ? k : 0, k);
            if (name == "all-to-all") block(k, r, k);
          }
        });
  }

  ncclResult_t move_call(Trial* trial, int r, int root) {
    const Case& c = trial->what;
    const auto i = static_cast<std::size_t>(r);
    const std::byte* in = from(*trial, i);
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
    ncclSend((*trial->in)[i].data(), c.count, c.dtype, (r + 1) % n_, comm, nullptr);
    return ncclRecv(out + last, c.count, c.dtype, (r + n_ - 1) % n_, comm, nullptr);
  }

  Cluster cluster_;
  int n_;
  unsigned seed_;
  std::size_t done_ = 0;
  std::vector<std::unique_ptr<Trial>> trials_;  // begun, not yet compared
};

}  // namespace matrix

#endif  // PYFT_TESTS_FLEXCCL_MATRIX_H_
