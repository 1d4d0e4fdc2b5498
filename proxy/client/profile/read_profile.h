// What servers have seen of their devices' work becomes records of this process.
#ifndef PYFT_CLIENT_PROFILE_READ_PROFILE_H_
#define PYFT_CLIENT_PROFILE_READ_PROFILE_H_

namespace pyft::client {

// Asks the servers of all devices; what they tell goes into the program's buffers. Says on stderr
// how much a server that died has taken with it, and counts it as dropped.
void read_profiles();

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROFILE_READ_PROFILE_H_
