#include "fault/fault_request.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "core/config.h"
#include "core/log.h"
#include "fault/setting_value.h"
#include "fault/upset_words.h"

namespace softgpu {
namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr std::string_view kBetween = ", \t\r";  // words
constexpr std::string_view kKinds =
    "error, lost, ecc, contained, hang, slow, flip, upset, stuck, copy, resume, clear";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(kBetween);
    if (begin == line.npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kBetween), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// Precondition: there is a word in it.
std::string_view trimmed(std::string_view text) {
  text.remove_prefix(text.find_first_not_of(kSpaces));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// The words of a request had blanks between them, in place of commas.
void say_new_spelling(std::string_view line) {
  static std::atomic<bool> said{false};
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < 2 || line.find(',') != line.npos || said.exchange(true)) return;
  std::string now;
  for (const std::string_view word : words) now += (now.empty() ? "" : ",") + std::string(word);
  log_line(SOFTGPU_LOG_WARNING,
           "the fault [%s] is spelled [%s] now: this version still takes the old "
           "spelling",
           std::string(trimmed(line)).c_str(), now.c_str());
}

bool real_number(std::string_view text, double* value) {
  const std::string copy(text);
  char* end = nullptr;
  *value = std::strtod(copy.c_str(), &end);
  return !copy.empty() && *end == 0 && std::isfinite(*value);
}

std::optional<RequestKind> kind_named(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, RequestKind>, 12> kNames = {{
      {"error", RequestKind::kError},
      {"lost", RequestKind::kLost},
      {"ecc", RequestKind::kEcc},
      {"contained", RequestKind::kContained},
      {"hang", RequestKind::kHang},
      {"slow", RequestKind::kSlow},
      {"flip", RequestKind::kFlip},
      {"upset", RequestKind::kUpset},
      {"stuck", RequestKind::kStuck},
      {"copy", RequestKind::kCopy},
      {"resume", RequestKind::kResume},
      {"clear", RequestKind::kClear},
  }};
  for (const auto& [name, kind] : kNames) {
    if (name == word) return kind;
  }
  return std::nullopt;
}

// One request being read. Each function returns a sentence, empty if all is well.
class Line {
 public:
  explicit Line(std::string_view text) : text_(trimmed(text)) { request_.text = text_; }

  std::string read(FaultRequest* out) {
    const auto words = words_of(text_);
    std::string problem = read_old_form(words.front());
    if (problem.empty() && !old_form_) problem = read_kind(words.front());
    for (size_t i = 1; i < words.size() && problem.empty(); ++i) problem = read_setting(words[i]);
    if (problem.empty()) problem = check();
    if (!problem.empty()) return "the fault " + bracketed(text_) + " is not understood: " + problem;
    request_.seed = seed_.value_or(0);
    request_.drawn_byte = !copied_byte_;
    if (copied_byte_) request_.byte = *copied_byte_;
    *out = request_;
    return "";
  }

 private:
  // "<launch>:<CUDA error>", which stands for error,code=<CUDA error>,at=<launch>.
  std::string read_old_form(std::string_view word) {
    const size_t colon = word.find(':');
    if (colon == word.npos || kind_named(word.substr(0, colon))) return "";
    old_form_ = true;
    request_.at = 0;
    const std::string problem =
        number("launch", word.substr(0, colon), 1, UINT64_MAX, &*request_.at);
    return problem.empty() ? read_code(word.substr(colon + 1)) : problem;
  }

  // "kind" or "kind:<launch>", which stands for at=<launch>.
  std::string read_kind(std::string_view word) {
    const size_t colon = std::min(word.find(':'), word.size());
    const auto kind = kind_named(word.substr(0, colon));
    if (!kind) return bracketed(word) + " is none of " + bracketed(kKinds);
    request_.kind = *kind;
    request_.upset.stuck = *kind == RequestKind::kStuck;
    return colon == word.size() ? "" : read_setting("at=" + std::string(word.substr(colon + 1)));
  }

  std::string read_code(std::string_view text) {
    uint64_t value = 0;
    const std::string problem = number("code", text, 1, 999, &value);
    request_.code = static_cast<int>(value);
    return problem;
  }

  std::string count(std::string_view name, std::string_view text, uint64_t least,
                    std::optional<uint64_t>* value) {
    return number(name, text, least, UINT64_MAX, &value->emplace());
  }

  std::string read_setting(std::string_view word) {
    const size_t equals = word.find('=');
    if (equals == word.npos) return bracketed(word) + " is no <name>=<value>";
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "device") return read_device(value);
    if (request_.kind == RequestKind::kResume || request_.kind == RequestKind::kClear) {
      return unknown(name);
    }
    if (name == "at") return count(name, value, 1, &request_.at);
    if (name == "in") return count(name, value, 1, &request_.in);
    if (name == "every") return count(name, value, 1, &request_.every);
    if (name == "times") return count(name, value, 1, &request_.times);
    if (name == "note") return read_note(value);
    if (name == "kernel" && request_.kind != RequestKind::kCopy) {
      request_.kernel = value;
      return value.empty() ? "[kernel] names none" : "";
    }
    if (request_.kind == RequestKind::kError && name == "code") return read_code(value);
    if (request_.kind == RequestKind::kSlow) return read_slow(name, value);
    if (request_.kind == RequestKind::kFlip) return read_flip(name, value);
    if (request_.kind == RequestKind::kCopy) return read_copy(name, value);
    if (request_.kind == RequestKind::kUpset) return read_upset(name, value, &request_.upset);
    if (request_.kind == RequestKind::kStuck) return read_stuck(name, value, &request_.upset);
    return unknown(name);
  }

  std::string unknown(std::string_view name) { return bracketed(name) + " is no setting of it"; }

  std::string read_device(std::string_view text) {
    uint64_t value = 0;
    const std::string problem = number("device", text, 0, kMaxDevices - 1, &value);
    request_.device = static_cast<int>(value);
    return problem;
  }

  std::string read_note(std::string_view text) {
    uint64_t value = 0;
    const std::string problem = number("note", text, 0, kNotes - 1, &value);
    request_.note = static_cast<unsigned>(value);
    return problem;
  }

  std::string read_slow(std::string_view name, std::string_view value) {
    if (name == "us") return number(name, value, 1, 3'600'000'000, &request_.delay_us);
    if (name != "factor") return unknown(name);
    const bool good = real_number(value, &request_.factor);
    if (good && request_.factor >= 1 && request_.factor <= 1e6) return "";
    return "[factor] is " + bracketed(value) + ", not a number from [1] to [1000000]";
  }

  std::string aim(FlipTarget target) {
    if (request_.target != FlipTarget::kNone && request_.target != target) {
      return "it has two targets";
    }
    request_.target = target;
    return "";
  }

  std::string read_flip(std::string_view name, std::string_view value) {
    std::string problem;
    uint64_t bit = 0;
    if (name == "address") {
      problem = aim(FlipTarget::kAddress);
      return problem.empty() ? number(name, value, 1, UINT64_MAX, &request_.address) : problem;
    }
    if (name == "allocation" || name == "size") {
      problem = aim(FlipTarget::kAllocation);
      if (!problem.empty()) return problem;
      return name == "size" ? count(name, value, 1, &request_.size)
                            : number(name, value, 1, UINT64_MAX, &request_.number);
    }
    if (name == "result") {
      const bool changed = value == "changed", any = value == "random";
      problem = aim(changed ? FlipTarget::kChanged
                    : any   ? FlipTarget::kAny
                            : FlipTarget::kArgument);
      if (!problem.empty() || changed || any) return problem;
      return number(name, value, 1, 1000, &request_.number);
    }
    if (name == "live") {
      problem = aim(FlipTarget::kLive);
      if (!problem.empty() || value == "random") return problem;
      return "[live] is " + bracketed(value) + ", not [random]";
    }
    if (name == "byte") return number(name, value, 0, UINT64_MAX, &request_.byte);
    if (name == "seed") return count(name, value, 0, &seed_);
    if (name != "bit") return unknown(name);
    problem = number(name, value, 0, 7, &bit);
    request_.bit = static_cast<unsigned>(bit);
    return problem;
  }

  std::string read_copy(std::string_view name, std::string_view value) {
    if (name == "seed") return count(name, value, 0, &seed_);
    if (name == "byte") return count(name, value, 0, &copied_byte_);
    if (name != "bit") return unknown(name);
    uint64_t bit = 0;
    std::string problem = number(name, value, 0, 7, &bit);
    request_.bit = static_cast<unsigned>(bit);
    return problem;
  }

  std::string check() const {
    const FaultRequest& r = request_;
    if (r.at && r.in) return "[at] and [in] exclude each other";
    if (r.kind == RequestKind::kError && !r.code) return "it has no [code]";
    if (r.kind == RequestKind::kSlow && (r.factor == 0) == (r.delay_us == 0)) {
      return "it needs either [factor] or [us]";
    }
    if (r.kind == RequestKind::kStuck) return check_stuck(r.upset);
    if (r.kind == RequestKind::kCopy && copied_byte_ && seed_) return "[byte] excludes [seed]";
    if (r.kind != RequestKind::kFlip) return "";
    if (r.target == FlipTarget::kNone)
      return "it needs one of [address, allocation, size, result, live]";
    const bool any = r.target == FlipTarget::kAny || r.target == FlipTarget::kLive;
    if (any && r.byte) return "[byte] is drawn: [random] excludes it";
    if (seed_ && !any) return "[seed] is for [result=random] and [live=random]";
    return "";
  }

  std::string_view text_;
  FaultRequest request_;
  std::optional<uint64_t> seed_, copied_byte_;
  bool old_form_ = false;
};

}  // namespace

std::string parse_faults(std::string_view text, std::vector<FaultRequest>* requests) {
  requests->clear();
  bool comment = false;
  std::string line;
  const auto end_line = [&]() -> std::string {
    FaultRequest request;
    std::string problem;
    if (!words_of(line).empty()) {
      say_new_spelling(line);
      problem = Line(line).read(&request);
      requests->push_back(request);
    }
    line.clear();
    return problem;
  };
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : '\n';
    if (c == '\n') comment = false;
    if (c == '#') comment = true;
    if (comment) continue;
    if (c != '\n' && c != ';') {
      line += c;
      continue;
    }
    if (std::string problem = end_line(); !problem.empty()) {
      requests->clear();
      return problem;
    }
  }
  return "";
}

}  // namespace softgpu
