// What every rank of a communicator has of its own, made so that a repair changes it in a time that
// does not grow with the number of ranks: copies share one block, changes lie beside it.
#ifndef FLEXCCL_MEMBERSHIP_ADDRESS_BOOK_H_
#define FLEXCCL_MEMBERSHIP_ADDRESS_BOOK_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "transport/address.h"

namespace flexccl {

// A vector whose copies share their items. They never change: edit() makes new ones.
template <class T>
class SharedVector {
 public:
  SharedVector(std::vector<T> items = {})
      : items_(std::make_shared<const std::vector<T>>(std::move(items))) {}

  std::size_t size() const { return items_->size(); }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }
  const T& front() const { return items_->front(); }
  const T& back() const { return items_->back(); }
  const T& operator[](std::size_t at) const { return (*items_)[at]; }
  template <class Change>
  void edit(const Change& change) {
    std::vector<T> items = *items_;
    change(items);
    *this = SharedVector(std::move(items));
  }

 private:
  std::shared_ptr<const std::vector<T>> items_;
};

// By slot, reserved ones included; port 0: not known here.
class AddressBook {
 public:
  AddressBook(std::vector<Address> all = {}) : all_(std::move(all)) {}

  std::size_t size() const { return all_.size(); }
  const Address& operator[](std::size_t slot) const {
    const auto found = find(slot);
    return found == newer_.end() ? all_[slot] : found->second;
  }
  void set(std::size_t slot, const Address& address) {
    if (const auto found = find(slot); found != newer_.end()) {
      newer_[static_cast<std::size_t>(found - newer_.begin())].second = address;
      return;
    }
    newer_.emplace_back(slot, address);
    if (newer_.size() <= kMaxNewer) return;
    all_.edit([this](std::vector<Address>& all) {
      for (const auto& [slot, address] : newer_) all[slot] = address;
    });
    newer_.clear();
  }

 private:
  static constexpr std::size_t kMaxNewer = 16;
  using Newer = std::vector<std::pair<std::size_t, Address>>;

  Newer::const_iterator find(std::size_t slot) const {
    return std::find_if(newer_.begin(), newer_.end(),
                        [slot](const auto& one) { return one.first == slot; });
  }

  SharedVector<Address> all_;
  Newer newer_;  // than `all_`
};

}  // namespace flexccl

#endif  // FLEXCCL_MEMBERSHIP_ADDRESS_BOOK_H_
