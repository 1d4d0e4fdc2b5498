// How far this server's device has come with completion words, of which the client may have seen
// more: an earlier server has published them.
//
// An OBSERVED mark holds when what was sent for its word up to there has been reached here (A4). A
// value below the first that was sent here is of before the cut, and holds at once: the first one
// may stand behind work that waits for what comes behind the mark. That is not only so in the
// replay. The client may have seen a word of the earlier server before that died, and append the
// mark only now; so a server that replaces another one looks at all marks. Where there was none
// before, the client has seen nothing but what is so.
#ifndef PYFT_CHECKPOINT_RECOVERY_WORD_PROGRESS_H_
#define PYFT_CHECKPOINT_RECOVERY_WORD_PROGRESS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "ring/layout.h"

namespace pyft::checkpoint {

class WordProgress {
 public:
  // `follows`: a server before this one has published words.
  explicit WordProgress(bool follows)
      : words_(follows ? std::make_unique<Word[]>(ring::kCompletionWords) : nullptr) {}

  // The stream has been given the value to publish. Dispatch thread; `word` is in range, as below.
  void sent(uint32_t word, uint64_t value) {
    if (!words_) return;
    if (!words_[word].first) words_[word].first = value;
    raise(&words_[word].sent, value);
  }
  // Before it is published, so that the client cannot have seen what is not noted. Any thread.
  void reached(uint32_t word, uint64_t value) {
    if (words_) raise(&words_[word].reached, value);
  }
  // What was published before the cut has not been sent here, and holds. Dispatch thread.
  bool holds(uint32_t word, uint64_t value) const {
    if (!words_ || value < words_[word].first) return true;
    const uint64_t sent = words_[word].sent.load(std::memory_order_relaxed);
    return words_[word].reached.load(std::memory_order_acquire) >= std::min(value, sent);
  }

 private:
  struct Word {
    uint64_t first = 0;  // dispatch thread's
    std::atomic<uint64_t> sent{0}, reached{0};
  };
  static void raise(std::atomic<uint64_t>* to, uint64_t value) {
    uint64_t seen = to->load(std::memory_order_relaxed);
    while (seen < value && !to->compare_exchange_weak(seen, value, std::memory_order_release,
                                                      std::memory_order_relaxed))
      continue;
  }

  std::unique_ptr<Word[]> words_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RECOVERY_WORD_PROGRESS_H_
