// Courses of the model of shared snapshots (tests/unit/recovery/shares_traces.py, which explains
// the lines) on the real Store and the real CutStates: both do, say and keep the same.
#include <algorithm>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/digest/digest.h"
#include "checkpoint/snapshot/cut_states.h"
#include "recovery/object.h"

namespace {

using namespace recovery_test;  // NOLINT: a test
using checkpoint::CutAction;
using checkpoint::CutActions;
using checkpoint::CutFacts;
using checkpoint::CutStates;

constexpr uint64_t kHeap = 1 << 20;
constexpr size_t kBytes = 64;  // of each content
constexpr int kLooks = 3;      // until nothing is to be done
constexpr checkpoint::CutRules kRules{.compares = true, .shares = true};

// A block of a line: where it is, what is in it, and whose store has that; -1: its own.
struct Block {
  uint64_t address;
  std::string content;
  int64_t owner;
  bool operator==(const Block&) const = default;
};

std::string filled(const std::string& name) {
  std::string bytes(name);
  bytes.resize(kBytes, '.');
  return bytes;
}

class Rank {
 public:
  Rank() : object_(kBeforeHeap + kHeap) { open(); }

  void cut(uint64_t step, uint64_t seq, const std::vector<Block>& blocks) {
    const CutFacts facts{++came_, seq, step, false};
    const bool taken = states_.admit(facts, kRules) == CutStates::Admission::kTake;
    check(taken == (seq != 0), "a cut is taken, or is left out");
    if (!taken) return perform(states_.skip(facts, kRules));
    begin(facts, step, blocks);
    perform(states_.hashed(true, kRules));
  }

  void copied() {
    check(states_.stage() == CutStates::Stage::kCopying, "something is copied");
    for (const auto& [at, content] : std::exchange(later_, {}))
      std::memcpy(store_->at(at), content.data(), content.size());
    perform(states_.made(true, true));
    if (states_.waits() && !states_.is_aborted(say_)) look();
  }

  void told(const std::string& what, uint64_t step) {
    uint64_t& last = what == "commit" ? say_.committed : say_.aborted;
    last = std::max(last, step);
  }

  void turn() {
    if (!states_.waits()) return;
    asks_ ? perform(states_.answered(say_)) : look();
    asks_ = asks_ && states_.waits();
  }

  void ask() {
    check(states_.admit({came_ + 1, 0, 0, true}, kRules) == CutStates::Admission::kAskFirst,
          "the agent is asked first");
    asks_ = true;
    perform(states_.ask());
  }

  void alone(uint64_t seq, const std::vector<Block>& blocks) {
    const CutFacts facts{++came_, seq, 0, true};
    check(states_.admit(facts, kRules) == CutStates::Admission::kTake, "there is room");
    check(store_->lend(), "there is room for what is lent");
    begin(facts, 0, blocks);
    perform(states_.hashed(true, kRules));
    copied();
  }

  void exited(uint64_t agreed) {
    store_.reset();
    open();
    if (agreed)
      check_same(store_->promote_unfinished(agreed), std::string(), "the agreed snapshot");
    states_ = CutStates(store_->has_committed() ? store_->committed().manifest.cut : 0);
    say_ = {};
    asks_ = false;
    later_.clear();
  }

  void says(const std::string& what) {
    check_same(said_.empty() ? std::string() : said_.front(), what, "what is said");
    if (!said_.empty()) said_.pop_front();
  }

  // All that the store has, against what the model has.
  void state(std::istringstream& line);

  // Whether it has this content, byte by byte.
  bool has(const std::string& content) const {
    const std::string bytes = filled(content);
    const std::byte* at = store_->find({0, kBytes, digest(bytes), 0});
    return at && std::memcmp(at, bytes.data(), kBytes) == 0;
  }

  void agreed(uint64_t seq) { agreed_ = seq; }
  // What a server that starts now would begin with.
  const std::vector<Block>& point() const {
    return agreed_ > store_->committed().manifest.seq ? waiting_ : current_;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  void check(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) wrong_ = "it does not hold: " + what;
  }
  template <class T>
  void check_same(const T& got, const T& wanted, const std::string& what) {
    std::ostringstream text;
    text << what << ": [" << got << "] instead of [" << wanted << "]";
    if (!(got == wanted) && wrong_.empty()) wrong_ = text.str();
  }

  ring::Digest digest(const std::string& bytes) const {
    return checkpoint::digest(bytes.data(), bytes.size(), store_->seed());
  }

  void open() {
    std::string error;
    store_ = object_.open(&error);
    check_same(error, std::string(), "the store opens");
  }

  void begin(const CutFacts& cut, uint64_t step, const std::vector<Block>& blocks) {
    states_.begin(cut);
    for (const Block& block : blocks) add(block);
    ring::Manifest manifest{};
    manifest.cut = cut.number;
    manifest.seq = cut.seq;
    manifest.step = step;
    check(store_->write(manifest, {}), "there is room for the table");
  }

  // What is copied lies there when all copies have been made.
  void add(const Block& block) {
    const std::string bytes = filled(block.content);
    contents_.insert(block.content);
    const ring::Digest sum = digest(bytes);
    if (block.owner >= 0)
      return store_->add_elsewhere(block.address, kBytes, sum, static_cast<uint64_t>(block.owner));
    if (store_->add_known(block.address, kBytes, sum)) return;
    const uint64_t offset = store_->reserve(kBytes);
    check(offset != checkpoint::Heap::kNone, "there is room for a content");
    later_.emplace_back(offset, bytes);
    store_->add_stored(block.address, kBytes, sum, offset);
  }

  void look() {
    int looks = 0;
    for (CutActions todo; !(todo = states_.look(say_, false)).empty(); perform(todo))
      if (++looks > kLooks) return check(false, "it is done at last");
  }

  void perform(const CutActions& todo) {
    using Do = CutAction::Do;
    for (const CutAction& action : todo) {
      const std::string about = " " + std::to_string(action.about);
      if (action.what == Do::kStage) said_.push_back("staged" + about);
      if (action.what == Do::kPass) said_.push_back("passed" + about);
      if (action.what == Do::kPrepare) said_.push_back("prepared" + about);
      if (action.what == Do::kAsk) said_.push_back("asks" + about);
      if (action.what == Do::kPromote) store_->promote();
      if (action.what == Do::kDrop) store_->drop_open();
    }
  }

  size_t held(std::set<std::string> lent) const;
  void compare(const checkpoint::StoredSnapshot& got, uint64_t step, uint64_t seq,
               const std::vector<Block>& blocks, const std::string& which);

  Object object_;
  std::unique_ptr<checkpoint::Store> store_;
  CutStates states_;
  checkpoint::CutDecisions say_;
  uint64_t came_ = 0;
  bool asks_ = false;
  std::deque<std::string> said_;
  std::vector<std::pair<uint64_t, std::string>> later_;  // copies that have not been made
  std::set<std::string> contents_;                       // that were ever in a cut
  std::vector<Block> current_, waiting_;
  uint64_t agreed_ = 0;
  std::string wrong_;
};

// Blocks up to a word that is none, which `end` gets.
std::vector<Block> blocks_of(std::istringstream& line, std::string* end) {
  std::vector<Block> found;
  for (std::string word; line >> word;) {
    const size_t is = word.find('='), by = word.rfind('/');
    if (is == std::string::npos || by == std::string::npos) {
      *end = word;
      break;
    }
    const std::string owner = word.substr(by + 1);
    found.push_back({std::stoull(word.substr(0, is)), word.substr(is + 1, by - is - 1),
                     owner.empty() ? -1 : std::stoll(owner)});
  }
  return found;
}

void Rank::compare(const checkpoint::StoredSnapshot& got, uint64_t step, uint64_t seq,
                   const std::vector<Block>& blocks, const std::string& which) {
  check_same(got.manifest.step, step, which + ": step");
  check_same(got.manifest.seq, seq, which + ": entry");
  check_same(got.blocks.size(), blocks.size(), which + ": blocks");
  for (size_t i = 0; i < std::min(blocks.size(), got.blocks.size()); ++i) {
    const ring::ManifestBlock& block = got.blocks[i];
    const int64_t owner =
        ring::is_remote(block) ? static_cast<int64_t>(ring::owner_of(block)) : int64_t{-1};
    check_same(block.address, blocks[i].address, which + ": address");
    check_same(owner, blocks[i].owner, which + ": owner");
    check(block.digest == digest(filled(blocks[i].content)), which + ": content");
  }
}

// How many contents are its own, each counted once.
size_t Rank::held(std::set<std::string> lent) const {
  for (const auto& blocks : {current_, waiting_})
    for (const Block& block : blocks)
      if (block.owner < 0) lent.insert(block.content);
  return lent.size();
}

void Rank::state(std::istringstream& line) {
  check(said_.empty(), "nothing else is said");
  std::string word;
  uint64_t step = 0, seq = 0;
  line >> word >> step >> seq;  // current
  current_ = blocks_of(line, &word);
  compare(store_->committed(), step, seq, current_, "the committed snapshot");
  for (const Block& block : current_) check(block.owner >= 0 || has(block.content), "its contents");
  line >> step >> seq;  // waiting
  waiting_ = blocks_of(line, &word);
  check_same(store_->waiting().has_value(), seq != 0, "one waits");
  if (seq && store_->waiting())
    compare(*store_->waiting(), step, seq, waiting_, "that which waits");
  std::set<std::string> lent;
  while (line >> word) lent.insert(word);
  if (!seq)  // else it is not said
    check_same(store_->header().heap_used.load(), held(lent) * checkpoint::Heap::rounded(kBytes),
               "what the heap holds");
  for (const std::string& content : contents_) {
    check_same(store_->lends(0, digest(filled(content))), lent.contains(content),
               content + " lent");
    check(!lent.contains(content) || has(content), "what is lent is there");
  }
}

struct Job {
  std::vector<std::unique_ptr<Rank>> ranks;

  // Empty, or what is wrong.
  std::string line(const std::string& text) {
    std::istringstream words(text);
    std::string what, more;
    uint64_t id = 0, step = 0, seq = 0;
    words >> what >> id;
    if (what == "trace") {
      ranks.clear();
      for (uint64_t i = 0; i < id; ++i) ranks.push_back(std::make_unique<Rank>());
      return {};
    }
    Rank& rank = *ranks.at(id);
    if (what == "cut") {
      words >> step >> seq;
      rank.cut(step, seq, blocks_of(words, &more));
    } else if (what == "alone") {
      words >> seq;
      rank.alone(seq, blocks_of(words, &more));
    } else if (what == "told") {
      words >> more >> step;
      rank.told(more, step);
    } else if (what == "exited") {
      words >> seq;
      rank.exited(seq);
    } else if (what == "says") {
      std::getline(words >> std::ws, more);
      rank.says(more);
    } else if (what == "agreed") {
      words >> seq;
      rank.agreed(seq);
    } else if (what == "copied") {
      rank.copied();
    } else if (what == "turn") {
      rank.turn();
    } else if (what == "ask") {
      rank.ask();
    } else if (what == "state") {
      rank.state(words);
      if (rank.wrong().empty()) return lacks();
    } else {
      return "a line that means nothing";
    }
    return rank.wrong();
  }

  // A server that starts now finds each content that its rank's snapshot names.
  std::string lacks() const {
    for (size_t id = 0; id < ranks.size(); ++id)
      for (const Block& block : ranks[id]->point())
        if (block.owner >= 0 && !ranks.at(static_cast<size_t>(block.owner))->has(block.content))
          return "rank " + std::to_string(id) + " lacks " + block.content;
    return {};
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "");
  Job job;
  size_t traces = 0, number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    traces += text.starts_with("trace ");
    if (const std::string wrong = job.line(text); !wrong.empty()) {
      std::cerr << argv[1] << ":" << number << ": " << text << "\n" << wrong << "\n";
      return 1;
    }
  }
  std::cout << traces << " traces, " << number << " lines\n";
  return traces >= 100 ? 0 : 1;  // nothing was tried, or almost nothing
}
