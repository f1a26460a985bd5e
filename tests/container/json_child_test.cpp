#include "prepack/container/json_child.h"

#include <chrono>
#include <string>

#include "catch.h"
#include "prepack/base/progress.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

Child StartShell(const std::string& script) {
  return Value(Child::Start(
      {.arguments = {"/bin/sh", "-c", script}, .environment = {{"PREPACK_TEST_WORD", "said"}}}));
}

TEST_CASE("a child answers line by line, with the variables that it was given") {
  Child child = StartShell(R"(while read -r line; do
    printf '{"%s": %s}\n' "$PREPACK_TEST_WORD" "$line"; done)");
  CHECK(Value(child.Ask({{"a", 1}}, 10)).dump() == R"({"said":{"a":1}})");
  Child moved = std::move(child);
  CHECK(Value(moved.Ask({{"b", "\n"}}, 10)).dump() == R"({"said":{"b":"\n"}})");
}

TEST_CASE("several answers at once are taken one by one") {
  Child child = StartShell(R"(read -r line; printf '{"n":1}\n{"n":2}\n'; read -r line; sleep 9)");
  CHECK(Value(child.Ask(Json::object(), 10)).dump() == R"({"n":1})");
  CHECK(Value(child.Ask(Json::object(), 10)).dump() == R"({"n":2})");
}

TEST_CASE("a program that is not there, or ends, is said to be so with its own words") {
  CheckError(Child::Start({.arguments = {"/nowhere/python3"}}).status(), ErrorKind::kUnavailable,
             "/nowhere/python3: the program cannot be started");
  Child child = StartShell("echo 'first' >&2; echo 'No module named vllm' >&2; exit 1");
  CheckError(child.Ask(Json::object(), 10).status(), ErrorKind::kUnavailable,
             "the program has ended (found No module named vllm)");
}

TEST_CASE("what is no answer is an error") {
  CheckError(StartShell("read -r line; echo hello; sleep 9").Ask(Json::object(), 10).status(),
             ErrorKind::kMalformed, "its answer is no JSON object (found hello)");
  CheckError(StartShell("read -r line; echo '[1]'; sleep 9").Ask(Json::object(), 10).status(),
             ErrorKind::kMalformed, "no JSON object");
  CheckError(StartShell("head -c 2000000 /dev/zero; sleep 9").Ask(Json::object(), 10).status(),
             ErrorKind::kMalformed, "longer than 1 MiB");
  CheckError(StartShell("sleep 9").Ask(Json::object(), 0.2).status(), ErrorKind::kUnavailable,
             "did not answer within 0 s");
}

TEST_CASE("a request to stop is not kept waiting by a child") {
  Child child = StartShell("sleep 9");
  RequestCancellation();
  const Status status = child.Ask(Json::object(), 10).status();
  ResetCancellation();
  CheckError(status, ErrorKind::kInterrupted, "/bin/sh");
}

TEST_CASE("a child that does not end with its input is killed") {
  const auto begin = std::chrono::steady_clock::now();
  { const Child child = StartShell("trap '' TERM HUP; while true; do sleep 1; done"); }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

}  // namespace
}  // namespace prepack::testing
