#ifndef PREPACK_FORMATS_PYTHON_REGEX_H_
#define PREPACK_FORMATS_PYTHON_REGEX_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace prepack {

// A pattern of Python's `re` module as one for PCRE2:
//
//     \Z        the very end of the text; PCRE2 spells it \z
//     {,n} {,}  at most n times, any number of times; PCRE2 before 10.43 takes them literally
//     \v        the character; PCRE2 takes it for a class
//     \12       group 12; PCRE2 takes it for a character where there are fewer groups
//
// What only PCRE2 takes is an error in Python: kMalformed. So are its escapes and groups (\K, \h,
// \Q,
// (?|…), (?<name>…), (*VERB) …), repetitions of repetitions and of places (a{2}{3}, ^*), references
// to groups that have not ended, flags that are not at the start, and \x without two digits. What
// Python has and PCRE2 reads otherwise is kUnsupported: \N{name}, \u, POSIX classes as plain
// characters, conditions, and the flags a, L, u and x. `where` names the place of the pattern.
Result<std::string> PythonRegexForPcre(std::string_view pattern, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_PYTHON_REGEX_H_
