// What a launch writes over is kept, byte by byte: so it is known what it has written, and memory
// can be put back.
//
// Contract between work/ (which asks for it) and exec/ (which tells of each store). A launch
// without a journal costs nothing.
#ifndef SOFTGPU_CORE_JOURNAL_H_
#define SOFTGPU_CORE_JOURNAL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/kernel.h"

namespace softgpu {

// Why a launch cannot be compared with a second execution of it.
enum class Unlike : uint8_t {
  kNone,
  kOrder,  // its blocks meet, and their order is drawn (exec/noise.h)
  kHost,   // it reads or writes memory that is not its device's
  kCalls,  // it prints, allocates, or has failed an assertion
  kClock,  // it reads a clock, or on which SM it runs
  kWaits,  // it takes far longer than the first execution: it may wait for others
  kRoom,   // it writes more than is kept
};

// One launch at a time, of one thread.
class SOFTGPU_OF_EXECUTOR Journal {
 public:
  struct Options {
    int device = 0;
    uint64_t most_bytes = 0;         // of memory, in whole pages
    uint64_t most_instructions = 0;  // of a warp each; 0: any number
    bool second = false;             // stops at the first thing that cannot be compared
  };
  Journal();
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  // Forgets the launch before.
  void begin(const Options& options);

  // ---- for the executor; false: the launch has to stop ----
  bool read(uint64_t address);
  // Before these bytes are written, by the block of that number. Precondition: they are mapped.
  bool write(uint64_t address, uint32_t bytes, uint64_t block);
  // What the launch does or comes to.
  bool may(Unlike what);
  // Its blocks start in another order each time.
  void order_is_drawn() { drawn_ = true; }
  bool is_second() const { return options_.second; }
  uint64_t most_instructions() const { return options_.most_instructions; }

  // ---- behind the launch ----
  Unlike unlike() const { return unlike_; }
  uint64_t instructions = 0;
  // Calls f(address, bytes) for what was written, by address, each piece as long as it can be.
  template <class F>
  void each_piece(F&& f) const;
  // Puts back what was there before. Done twice, nothing has changed.
  void swap();

 private:
  static constexpr int kPageShift = 12, kLineShift = 6;
  static constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;
  static constexpr uint64_t kLineBytes = uint64_t{1} << kLineShift;
  static constexpr uint32_t kLines = kPageBytes / kLineBytes;
  struct Page {
    uint64_t number = 0;
    std::array<uint64_t, kLines> written{};  // a bit for each byte of a line
    std::array<uint64_t, kLines> writer{};   // a block, or kMany
    alignas(64) std::array<uint8_t, kPageBytes> before;
  };

  bool is_own(uint64_t address) const;
  Page* page(uint64_t number);
  Page* add_page(uint64_t number);
  void write_line(Page* page, uint32_t line, uint64_t bits, uint64_t block);
  std::vector<const Page*> by_address() const;

  Options options_;
  Unlike unlike_ = Unlike::kNone;
  bool drawn_ = false;
  std::vector<std::unique_ptr<Page>> pages_;  // those of launches before are used again
  size_t used_ = 0;
  std::unordered_map<uint64_t, Page*> found_;
  std::array<Page*, 64> recent_{};  // by the number's last bits
};

// run_kernel() of kernel.h, with a journal that has begun; null: none. It can stop the launch in
// between, without a Fault.
SOFTGPU_OF_EXECUTOR Fault run_kernel(const Launch& launch, const Sms& sms, AddressSpace& memory,
                                     LaunchStats* stats, Journal* journal);

template <class F>
void Journal::each_piece(F&& f) const {
  uint64_t begin = 0, end = 0;
  const auto add = [&](uint64_t address, uint64_t bytes) {
    if (address != end && begin != end) {
      f(begin, end - begin);
      begin = end;
    }
    if (begin == end) begin = address;
    end = address + bytes;
  };
  for (const Page* page : by_address()) {
    for (uint32_t line = 0; line < kLines; ++line) {
      uint64_t left = page->written[line];
      const uint64_t address = (page->number << kPageShift) + line * kLineBytes;
      for (uint32_t at = 0; left;) {
        const auto skip = static_cast<uint32_t>(__builtin_ctzll(left));
        left >>= skip;
        const auto run = ~left ? static_cast<uint32_t>(__builtin_ctzll(~left)) : 64;
        add(address + at + skip, run);
        at += skip + run;
        left = run < 64 ? left >> run : 0;
      }
    }
  }
  if (begin != end) f(begin, end - begin);
}

}  // namespace softgpu

#endif  // SOFTGPU_CORE_JOURNAL_H_
