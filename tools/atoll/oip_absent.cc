// SPDX-License-Identifier: Apache-2.0
//
// In the place of oip_target.cc where libcurl was not there.
#include "tools/atoll/exit_code.h"
#include "tools/atoll/load_target.h"

namespace atollcmd {

std::unique_ptr<Target> OpenOipTarget(const OipAddress& address, const std::string&,
                                      const OipCredentials&, size_t) {
  Fail(ExitCode::kNoDevice,
       "cannot use '{}': this command was built without libcurl; install libcurl4-openssl-dev and "
       "build it again",
       address.text);
}

}  // namespace atollcmd
