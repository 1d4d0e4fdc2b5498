// Whose turn it is to be executed again, where time allows it for some only: those whose last one
// is the longest ago. So all are covered in a number of intervals, which is told.
#ifndef PYFT_SERVER_DMR_ROTATION_H_
#define PYFT_SERVER_DMR_ROTATION_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "ring/store_layout.h"

namespace pyft::server::dmr {

// An interval is what lies between two cuts; they are numbered from 1. Any thread, unless it says
// otherwise.
class Rotation {
 public:
  // Beyond this products are not told apart: they are never planned.
  static constexpr size_t kMost = 1 << 16;

  // A product by what it computes, and how many of that kind came before in its interval; never 0.
  using Name = uint64_t;
  enum class Turn {
    kPair,   // it was in a pair one interval before, so it will be now
    kNow,    // to be executed again
    kLater,  // if time is left
  };
  // `share`: of the time that may be spent on second executions. `all`: none is left out.
  struct Options {
    bool all = false;
    double share = 0;
  };
  explicit Rotation(const Options& options) : options_(options) {}

  uint64_t interval() const { return interval_; }
  // The next product of the interval, by a digest of its arguments. One thread, as at_cut().
  Name next(const ring::Digest& arguments);
  Turn turn(Name name);
  void paired(Name name, uint64_t interval);
  // What one execution takes.
  void cost(Name name, uint64_t ns);
  // What second executions have taken at the program's cost.
  void spent(uint64_t ns);
  // Two executions have been compared. True: none of it were before in this interval.
  bool covered(Name name, uint64_t interval);
  bool is_covered(Name name, uint64_t interval);
  // In how many intervals it was not, up to now.
  uint64_t age(Name name);
  // An interval ends at that time, and the next one is planned.
  void at_cut(uint64_t now_ns);
  // In so many intervals all products of the last whole one were covered. 0: not known yet.
  uint64_t period();

 private:
  struct Product {
    uint64_t first = 0, last = 0;       // intervals in which it was executed
    uint64_t covered = 0, paired = 0;   // likewise; 0: none
    uint64_t gap = 0;                   // between the last two in which it was covered
    uint64_t planned = 0, cost_ns = 0;  // 0: not known
  };
  uint64_t age_of(const Product& product, uint64_t in) const;
  void plan();
  void forget();

  const Options options_;
  std::mutex mutex_;
  std::unordered_map<Name, Product> products_;
  std::unordered_map<uint64_t, uint64_t> counts_;  // of this interval, by arguments
  uint64_t interval_ = 1, cut_ns_ = 0, period_ = 0;
  double credit_ns_ = 0;
};

}  // namespace pyft::server::dmr

#endif  // PYFT_SERVER_DMR_ROTATION_H_
