#include "core/journal.h"

#include <algorithm>
#include <cstring>

#include "core/windows.h"

namespace softgpu {
namespace {

constexpr uint64_t kMany = UINT64_MAX;   // blocks that have written a line
constexpr size_t kKeptPages = 64u << 8;  // 64 MiB of memory: more is given back

}  // namespace

Journal::Journal() = default;
Journal::~Journal() = default;

void Journal::begin(const Options& options) {
  options_ = options;
  unlike_ = Unlike::kNone;
  drawn_ = false;
  instructions = 0;
  if (pages_.size() > kKeptPages) pages_.resize(kKeptPages);
  used_ = 0;
  found_.clear();
  recent_.fill(nullptr);
}

// That of other devices, and of other processes, may change at any time.
bool Journal::is_own(uint64_t address) const {
  const auto device = static_cast<uint64_t>(options_.device);
  return address - kWindowBase - device * kWindowBytes < kWindowBytes ||
         address - kAuxiliaryBase - device * kAuxiliaryBytes < kAuxiliaryBytes;
}

bool Journal::may(Unlike what) {
  if (unlike_ == Unlike::kNone) unlike_ = what;
  return !options_.second;
}

bool Journal::read(uint64_t address) {
  return is_own(address) || may(Unlike::kHost);
}

bool Journal::write(uint64_t address, uint32_t bytes, uint64_t block) {
  if (unlike_ != Unlike::kNone) return !options_.second;
  if (!is_own(address)) return may(Unlike::kHost);
  for (const uint64_t end = address + bytes; address < end;) {
    Page* const page = this->page(address >> kPageShift);
    if (!page) return may(Unlike::kRoom);
    const uint64_t first = address % kLineBytes;
    const uint64_t count = std::min(kLineBytes - first, end - address);
    const uint64_t bits = (count == kLineBytes ? ~uint64_t{0} : (uint64_t{1} << count) - 1)
                          << first;
    write_line(page, address % kPageBytes >> kLineShift, bits, block);
    address += count;
  }
  return true;
}

void Journal::write_line(Page* page, uint32_t line, uint64_t bits, uint64_t block) {
  uint64_t& written = page->written[line];
  uint64_t& writer = page->writer[line];
  if (!written) {
    const size_t at = line * kLineBytes;
    const auto* from = reinterpret_cast<const uint8_t*>((page->number << kPageShift) + at);
    std::memcpy(page->before.data() + at, from, kLineBytes);
    writer = block;
  } else if (writer != block) {
    if (drawn_ && written & bits) may(Unlike::kOrder);  // the last one stays
    writer = kMany;
  }
  written |= bits;
}

Journal::Page* Journal::page(uint64_t number) {
  Page*& recent = recent_[number % recent_.size()];
  if (recent && recent->number == number) return recent;
  const auto found = found_.find(number);
  Page* const page = found != found_.end() ? found->second : add_page(number);
  if (page) recent = page;
  return page;
}

Journal::Page* Journal::add_page(uint64_t number) {
  if ((used_ + 1) * kPageBytes > options_.most_bytes) return nullptr;
  if (used_ == pages_.size()) pages_.push_back(std::make_unique<Page>());
  Page* const page = pages_[used_++].get();
  page->number = number;
  page->written.fill(0);
  found_.emplace(number, page);
  return page;
}

std::vector<const Journal::Page*> Journal::by_address() const {
  std::vector<const Page*> pages;
  pages.reserve(used_);
  for (size_t i = 0; i < used_; ++i) pages.push_back(pages_[i].get());
  std::ranges::sort(pages, {}, &Page::number);
  return pages;
}

// Only bytes that the launch has written: others of the line may be another stream's.
void Journal::swap() {
  for (size_t i = 0; i < used_; ++i) {
    Page& page = *pages_[i];
    for (uint32_t line = 0; line < kLines; ++line) {
      const uint64_t bits = page.written[line];
      if (!bits) continue;
      uint8_t* const kept = page.before.data() + line * kLineBytes;
      auto* const there =
          reinterpret_cast<uint8_t*>((page.number << kPageShift) + line * kLineBytes);
      if (bits == ~uint64_t{0}) {
        std::swap_ranges(there, there + kLineBytes, kept);
        continue;
      }
      for (uint64_t left = bits; left; left &= left - 1) {
        const int at = __builtin_ctzll(left);
        std::swap(there[at], kept[at]);
      }
    }
  }
}

}  // namespace softgpu
