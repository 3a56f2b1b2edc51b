// SPDX-License-Identifier: Apache-2.0
//
// In the place of frigate.cc where libzmq was not there.
#include "serve/program/frigate.h"

namespace atollserve {

atollrt::Result<std::unique_ptr<FrigateFront>> FrigateFront::Start(const FrigateOptions&,
                                                                   const std::string&, int,
                                                                   const Access&) {
  return atollrt::Unsupported(
      "--zmq and --deepstack need libzmq, which this atoll-serve was built without; install "
      "libzmq3-dev and build it again");
}

}  // namespace atollserve
