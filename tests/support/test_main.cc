// SPDX-License-Identifier: Apache-2.0
//
// main() of every test program. Files of tests share programs; with --file=path/to/x_test.cc only
// that file's tests run, of which --gtest_filter may choose some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "tests/support/absent.h"

namespace atollrt {
namespace {

std::string& AbsentThings() {
  static std::string things;
  return things;
}

// Leaves out all tests but those of the file. False if there are none, or if one of their suites
// has tests in other files, too.
bool KeepTestsOf(std::string_view file) {
  std::set<std::string> mine;
  std::set<std::string> others;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      // Compilers name a file as they were told to find it.
      const bool is_mine = std::string_view(suite.GetTestInfo(j)->file()).ends_with(file);
      (is_mine ? mine : others).insert(suite.name());
    }
  }
  std::string& filter = testing::GTEST_FLAG(filter);
  if (filter.find('-') == std::string::npos) filter += '-';
  for (const std::string& suite : others) {
    if (mine.count(suite) > 0) {
      std::printf("The suite %s has tests in several files.\n", suite.c_str());
      return false;
    }
    filter += ':' + suite + ".*";
  }
  if (mine.empty()) std::printf("This program has no tests of %s.\n", std::string(file).c_str());
  return !mine.empty();
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
  unsetenv("ATOLL_MODEL_PATH");  // what the user has there is no matter of tests
  constexpr std::string_view kFile = "--file=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFile) &&
      !atollrt::KeepTestsOf(std::string_view(argv[1]).substr(kFile.size()))) {
    return 1;
  }
  const int code = RUN_ALL_TESTS();
  const std::string& absent = atollrt::AbsentThings();
  if (code == 0 && !absent.empty()) std::printf("ATOLL-SKIPPED: absent: %s\n", absent.c_str());
  return code;
}
