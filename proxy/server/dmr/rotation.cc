#include "server/dmr/rotation.h"

#include <algorithm>
#include <vector>

namespace pyft::server::dmr {

namespace {

// Time that was not used is kept for as many intervals, or for the largest product.
constexpr double kKept = 4;

}  // namespace

Rotation::Name Rotation::next(const ring::Digest& arguments) {
  const std::lock_guard lock(mutex_);
  const uint64_t count = ++counts_[arguments.low];
  const Name drawn = arguments.low ^ count * 0x9e37'79b9'7f4a'7c15;
  const Name name = drawn ? drawn : 1;
  if (products_.size() >= kMost && !products_.contains(name)) return name;
  Product& product = products_[name];
  if (!product.first) product.first = interval_;
  product.last = interval_;
  return name;
}

Rotation::Turn Rotation::turn(Name name) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  const bool known = found != products_.end();
  if (known && found->second.paired && found->second.paired + 1 == interval_) return Turn::kPair;
  const bool now = options_.all || (known && found->second.planned == interval_);
  return now ? Turn::kNow : Turn::kLater;
}

void Rotation::paired(Name name, uint64_t interval) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  if (found != products_.end()) found->second.paired = std::max(found->second.paired, interval);
}

void Rotation::cost(Name name, uint64_t ns) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  if (found != products_.end()) found->second.cost_ns = std::max<uint64_t>(ns, 1);
}

void Rotation::spent(uint64_t ns) {
  const std::lock_guard lock(mutex_);
  credit_ns_ -= static_cast<double>(ns);
}

bool Rotation::covered(Name name, uint64_t interval) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  if (found == products_.end()) return true;
  Product& product = found->second;
  if (product.covered >= interval) return false;
  product.gap = product.covered ? interval - product.covered : interval - product.first + 1;
  product.covered = interval;
  return true;
}

bool Rotation::is_covered(Name name, uint64_t interval) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  return found != products_.end() && found->second.covered >= interval;
}

uint64_t Rotation::age(Name name) {
  const std::lock_guard lock(mutex_);
  const auto found = products_.find(name);
  return found == products_.end() ? 0 : age_of(found->second, interval_);
}

uint64_t Rotation::period() {
  const std::lock_guard lock(mutex_);
  return period_;
}

// In the interval `in`, 0: it is covered there. One that never was counts from before its first.
uint64_t Rotation::age_of(const Product& product, uint64_t in) const {
  if (product.covered) return product.covered >= in ? 0 : in - product.covered;
  return in - std::min(in, product.first) + 1;
}

// What the interval before the one that ends has given is known by now, unless a stream is further
// behind than that: then the period looks longer than it is.
void Rotation::at_cut(uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const double passed = cut_ns_ ? static_cast<double>(now_ns - cut_ns_) : 0;
  cut_ns_ = now_ns;
  uint64_t oldest = 0, largest = 0;
  for (const auto& [name, product] : products_) {
    if (product.last + 1 < interval_) continue;
    largest = std::max(largest, product.cost_ns);
    if (product.first == interval_) continue;
    oldest = std::max({oldest, product.gap, age_of(product, interval_ - 1) + 1});
  }
  period_ = oldest;
  const double more = options_.share * passed;
  const double most = std::max(kKept * more, static_cast<double>(largest) + more);
  credit_ns_ = std::min(credit_ns_ + more, most);
  counts_.clear();
  plan();
  ++interval_;
  forget();
}

// One for which the time does not suffice keeps its turn: the credit grows until it does.
void Rotation::plan() {
  if (options_.all) return;
  std::vector<Product*> all;
  for (auto& [name, product] : products_)
    if (product.last == interval_ && product.paired != interval_ && product.cost_ns)
      all.push_back(&product);
  std::ranges::sort(all, {},
                    [](const Product* one) { return std::pair(one->covered, one->first); });
  double left = credit_ns_;
  for (Product* const product : all) {
    left -= static_cast<double>(product->cost_ns);
    if (left < 0) break;
    product->planned = interval_ + 1;
  }
}

void Rotation::forget() {
  if (products_.size() < kMost) return;
  std::erase_if(products_, [this](const auto& one) { return one.second.last + 2 < interval_; });
}

}  // namespace pyft::server::dmr
