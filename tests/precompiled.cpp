// CMake makes a precompiled header for a target only if one of its sources uses it: this one.
