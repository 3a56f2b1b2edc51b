// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TENSORFLOWLITE_C_REPORTER_H_
#define ATOLL_COMPAT_TENSORFLOWLITE_C_REPORTER_H_

#include "compat/tensorflowlite_c/c_api.h"

namespace atollcompat {

// Where a failure is told: to the function that the program gave, else to stderr.
class Reporter {
 public:
  Reporter() = default;
  Reporter(TfLiteErrorReporter function, void* user_data)
      : function_(function), user_data_(user_data) {}

  __attribute__((format(printf, 2, 3))) void Say(const char* format, ...) const;
  // What the last call of Atoll's C interface on this thread failed of.
  void SayLastError() const;

 private:
  TfLiteErrorReporter function_ = nullptr;
  void* user_data_ = nullptr;
};

// A line on stderr about what works, but not as the program may think.
__attribute__((format(printf, 1, 2))) void Warn(const char* format, ...);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TENSORFLOWLITE_C_REPORTER_H_
