#A program of its own : it replaces operator new.
prepack_add_tests(memory conversion_memory_test.cpp counting_allocator.cpp)
