// SPDX-License-Identifier: Apache-2.0
//
// In the place of mqtt.cc where libmosquitto was not there.
#include "tools/atoll/exit_code.h"
#include "tools/atoll/mqtt.h"

namespace atollcmd {

std::unique_ptr<MqttConnection> MqttConnection::Open(MqttOptions) {
  Fail(ExitCode::kUsage,
       "--mqtt needs libmosquitto, which this atoll was built without; install libmosquitto-dev "
       "and build it again");
}

}  // namespace atollcmd
