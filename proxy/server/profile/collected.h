// What CUPTI has told this server of the work of its device, as a client is told it: by entry.
#ifndef PYFT_SERVER_PROFILE_COLLECTED_H_
#define PYFT_SERVER_PROFILE_COLLECTED_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/profile_records.h"
#include "backend/cupti.h"

namespace pyft::server {

// One thread.
class Collected {
 public:
  // The records of a buffer that CUPTI has filled.
  void add(const backend::Cupti& cupti, uint8_t* buffer, size_t valid);
  // Ends with all that was added: the work of entries, in the client's format. What the server has
  // done for itself belongs to no entry, and is left out.
  std::vector<std::byte> take();
  // Forgets to which entries calls belong: nothing of them comes any more.
  void forget_calls() { entries_.clear(); }

 private:
  struct Work {
    uint32_t call;  // CUPTI's correlation id
    ProfiledWork work;
  };
  struct Name {
    uint32_t number = 0;
    bool told = false;
  };
  using Names = std::map<std::string, Name, std::less<>>;
  void add(const CUpti_Activity& record);
  uint32_t number_of(const char* name);
  void append(ProfiledWork work, std::vector<std::byte>* out);

  std::unordered_map<uint32_t, uint64_t> entries_;  // by call
  std::vector<Work> work_;
  Names names_;
  std::vector<Names::value_type*> by_number_;  // from 1
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_PROFILE_COLLECTED_H_
