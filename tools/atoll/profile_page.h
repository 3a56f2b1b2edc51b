// SPDX-License-Identifier: Apache-2.0
//
// A Profile as JSON and as a page of HTML that needs nothing else: style, script and data are in
// it (profile_page.html is the page without data).
#pragma once

#include <string>

#include "tools/atoll/profile_data.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// What `atoll profile --json` prints.
Json ProfileJson(const Session& session, const Profile& profile);

std::string ProfilePage(const Session& session, const Profile& profile);

}  // namespace atollcmd
