/* For tests in which sessions stop for good in the middle of something: like processes that are
 * killed, they free nothing. Leaks are not reported. */
#ifndef TESTS_LEAKS_ALLOWED_H
#define TESTS_LEAKS_ALLOWED_H

__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "detect_leaks=0";
}

#endif
