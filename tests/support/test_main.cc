// SPDX-License-Identifier: Apache-2.0
//
// main() of every test program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/absent.h"

namespace atollrt {
namespace {

std::string& AbsentThings() {
  static std::string things;
  return things;
}

}  // namespace

void ReportAbsent(const std::string& what) {
  std::printf("absent: %s\n", what.c_str());
  std::string& things = AbsentThings();
  if (things.find(what) == std::string::npos) things += (things.empty() ? "" : "; ") + what;
}

}  // namespace atollrt

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const std::string& absent = atollrt::AbsentThings();
  if (code == 0 && !absent.empty()) std::printf("ATOLL-SKIPPED: absent: %s\n", absent.c_str());
  return code;
}
