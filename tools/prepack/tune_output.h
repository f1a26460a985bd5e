#pragma once

// What `prepack tune` prints: text for people, and the document of --json.

#include <string>

#include "prepack/container/json.h"
#include "prepack/tune/report.h"

namespace prepack::cli {

// `scheme_file`: where the schemes were written to; empty: nowhere.
std::string TuneText(const TuneReport& report, const std::string& scheme_file);
Json TuneJson(const TuneReport& report);

}  // namespace prepack::cli
