prepack_add_tests(doctor
  doctor_test.cpp)
