// The rendezvous in a directory that all ranks see. Per communicator one folder in it, with one
// file per rank: its address, signed with the key of the job. A file appears whole (linked under
// its name when it is complete), so a reader never sees half of it. The rank that is the last to
// have read all files removes the folder.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include "base/error.h"
#include "rendezvous/rendezvous.h"
#include "transport/endpoint.h"

namespace flexccl::rendezvous {
namespace {

constexpr char kPrefix[] = "flexccl-";
constexpr std::time_t kAbandonedSeconds = 60;  // younger folders are left alone
constexpr std::chrono::milliseconds kFirstPause(1), kLongestPause(50);

struct Record {
  std::uint32_t magic, version, rank, nranks;
  std::uint64_t comm;
  Address address;
  Bytes16 mac;  // over everything above
};
static_assert(sizeof(Record) == 72);

Bytes16 record_mac(const Key& key, const Record& record) {
  return keyed_hash(key, bytes_of(record).first(offsetof(Record, mac)));
}

std::string folder_of(const UniqueId& id) {
  char name[sizeof kPrefix + 16];
  std::snprintf(name, sizeof name, "%s%016llx", kPrefix, static_cast<unsigned long long>(id.comm));
  return std::string(id.directory) + "/" + name;
}

std::string rank_file(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank);
}

[[noreturn]] void fail_file(const char* what, const std::string& path) {
  fail(ncclSystemError, "flexccl: ", what, " [", path, "] failed with error [",
       std::strerror(errno), "]");
}

// False when the file is not there.
bool read_record(const std::string& path, Record* record) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return false;
  if (!file) fail_file("opening", path);
  *record = {};  // a short file leaves zeros, which no key has signed
  if (read(file.get(), record, sizeof *record) < 0) fail_file("reading", path);
  return true;
}

void write_whole(const std::string& path, const Record& record) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || write(file.get(), &record, sizeof record) != sizeof record)
    fail_file("writing", path);
}

// Whether the process that wrote the record still answers.
bool alive(const Record& record, const Address& self) {
  try {
    if (record.address.host == self.host)
      connect_unix(record.address.process);
    else
      connect_tcp(record.address.ipv4, record.address.port, in_ms(1000));
    return true;
  } catch (const Error&) {
    return false;
  }
}

void remove_folder(const std::string& folder) {
  DIR* entries = opendir(folder.c_str());
  if (!entries) return;
  while (const dirent* entry = readdir(entries))
    if (entry->d_name[0] != '.') unlink((folder + "/" + entry->d_name).c_str());
  closedir(entries);
  rmdir(folder.c_str());
}

// A folder of a job that ended before all its ranks had met: old, and no writer answers any more.
bool abandoned(const std::string& folder) {
  struct stat status{};
  if (stat(folder.c_str(), &status) != 0 ||
      std::time(nullptr) - status.st_mtime < kAbandonedSeconds)
    return false;
  DIR* entries = opendir(folder.c_str());
  if (!entries) return false;
  const Address& self = Endpoint::process().address();
  bool answered = false;
  while (const dirent* entry = readdir(entries)) {
    Record record;
    if (std::strncmp(entry->d_name, "rank-", 5) == 0 &&
        read_record(folder + "/" + entry->d_name, &record))
      answered |= record.magic == kMagic && alive(record, self);
  }
  closedir(entries);
  return !answered;
}

void remove_abandoned(const std::string& directory) {
  DIR* entries = opendir(directory.c_str());
  if (!entries) fail_file("opening", directory);
  std::vector<std::string> old;
  while (const dirent* entry = readdir(entries))
    if (std::strncmp(entry->d_name, kPrefix, sizeof kPrefix - 1) == 0)
      old.push_back(directory + "/" + entry->d_name);
  closedir(entries);
  for (const std::string& folder : old) {
    try {
      if (abandoned(folder)) remove_folder(folder);
    } catch (const Error&) {
      // Another user's folder, or gone meanwhile: not this job's business.
    }
  }
}

// One rank at its meeting.
class Meeting {
 public:
  Meeting(const UniqueId& id, const Member& self)
      : folder_(folder_of(id)), key_(job_key(id)), comm_(id.comm), self_(self) {}

  std::vector<Address> meet(Deadline deadline) {
    publish();
    std::vector<Address> addresses;
    for (auto pause = kFirstPause; !read_all(&addresses);) {
      if (std::chrono::steady_clock::now() > deadline) give_up(addresses.size());
      look();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    leave();
    return addresses;
  }

 private:
  std::string own(const char* kind) const {
    return folder_ + "/" + kind + std::to_string(self_.rank);
  }

  void publish() {
    Record record{kMagic,
                  kWireVersion,
                  static_cast<std::uint32_t>(self_.rank),
                  static_cast<std::uint32_t>(self_.nranks),
                  comm_,
                  self_.address,
                  {}};
    record.mac = record_mac(key_, record);
    char name[32];
    std::snprintf(name, sizeof name, "/new-%016llx", static_cast<unsigned long long>(random64()));
    const std::string unfinished = folder_ + name;
    write_whole(unfinished, record);
    const bool taken = !claim(unfinished);
    unlink(unfinished.c_str());
    if (taken)
      fail(ncclInvalidUsage, "flexccl: two callers say they are rank [", self_.rank, "] of [",
           self_.nranks, "]");
  }

  // A file under this rank's name is another caller's, or that of a process that died before the
  // ranks had met and was started again.
  bool claim(const std::string& unfinished) {
    const std::string mine = rank_file(folder_, self_.rank);
    if (link(unfinished.c_str(), mine.c_str()) == 0) return true;
    if (errno != EEXIST) fail_file("linking", mine);
    Record other;
    if (read_record(mine, &other) && is_signed(other) && alive(other, self_.address)) return false;
    if (rename(unfinished.c_str(), mine.c_str()) != 0) fail_file("renaming", mine);
    return true;
  }

  bool is_signed(const Record& record) const {
    return record.magic == kMagic && record.comm == comm_ &&
           equal_macs(record.mac, record_mac(key_, record));
  }

  // `addresses` holds those in rank order up to the first rank that is missing.
  bool read_all(std::vector<Address>* addresses) const {
    addresses->clear();
    for (int rank = 0; rank < self_.nranks; ++rank) {
      const std::string path = rank_file(folder_, rank);
      Record record;
      if (!read_record(path, &record)) return false;
      if (!is_signed(record) || record.rank != static_cast<std::uint32_t>(rank))
        fail(ncclRemoteError, "flexccl: [", path, "] is not signed with the key of the job");
      if (record.nranks != static_cast<std::uint32_t>(self_.nranks))
        fail(ncclInvalidUsage, "flexccl: rank [", self_.rank, "] says there are [", self_.nranks,
             "] ranks, rank [", rank, "] said [", record.nranks, "]");
      addresses->push_back(record.address);
    }
    return true;
  }

  void leave() const {
    const Fd seen(open(own("seen-").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    for (int rank = 0; rank < self_.nranks; ++rank)
      if (access((folder_ + "/seen-" + std::to_string(rank)).c_str(), F_OK) != 0) return;
    remove_folder(folder_);
  }

  void look() const {
    if (self_.look) try {
        self_.look();
      } catch (const Error&) {
        retire();
        throw;
      }
  }

  void retire() const {
    unlink(rank_file(folder_, self_.rank).c_str());
    rmdir(folder_.c_str());  // the last one that gives up
  }

  [[noreturn]] void give_up(std::size_t present) const {
    retire();
    fail(ncclRemoteError, "flexccl: rank [", present, "] of [", self_.nranks,
         "] did not come to the rendezvous in [", folder_, "] in time");
  }

  std::string folder_;
  Key key_;
  std::uint64_t comm_;
  Member self_;
};

}  // namespace

void start_file_meeting(UniqueId* id, const std::string& directory) {
  if (directory.size() >= sizeof id->directory)
    fail(ncclInvalidArgument, "flexccl: the rendezvous directory [", directory,
         "] is longer than [", sizeof id->directory - 1, "] bytes");
  std::memcpy(id->directory, directory.data(), directory.size());
  remove_abandoned(directory);
  const std::string folder = folder_of(*id);
  if (mkdir(folder.c_str(), 0700) != 0) fail_file("making", folder);
}

std::vector<Address> meet_in_files(const UniqueId& id, const Member& self, Deadline deadline) {
  return Meeting(id, self).meet(deadline);
}

}  // namespace flexccl::rendezvous
