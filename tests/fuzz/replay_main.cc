// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target once for each file of the directories that are named on the command line, in
// builds without libFuzzer: finds of the past stay found. Fails if there is no file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
      // A block of exactly this size, so that the sanitizers see every over-read.
      const std::unique_ptr<uint8_t[]> block(new uint8_t[bytes.size()]);
      std::copy(bytes.begin(), bytes.end(), block.get());
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);  // the last line names the culprit of a crash
      LLVMFuzzerTestOneInput(block.get(), bytes.size());
      ++files;
    }
  }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
