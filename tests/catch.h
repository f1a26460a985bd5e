#pragma once

// The one place that knows whether Catch2 is version 2 (Debian 12) or 3 (later).

// So that it prints the elements of maps.
#define CATCH_CONFIG_ENABLE_PAIR_STRINGMAKER

#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
