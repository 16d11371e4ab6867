#include "report/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Digits behind the point, so that three digits are significant. */
static int decimals_of(double value)
{
    double size = fabs(value);
    int decimals = 2;
    if (size >= 99.95)
        return 0;
    if (size >= 9.995)
        return 1;
    while (size < 0.9995 && decimals < 6) {
        size *= 10;
        decimals++;
    }
    return decimals;
}

/* Writes the number without its unit, which is returned. */
static const char *write_digits(double value, char text[NUMBER_BYTES])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    unsigned unit = 0;
    while (fabs(value) >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    if (value == 0)
        snprintf(text, NUMBER_BYTES, "0");
    else if (fabs(value) < 1e-6 || fabs(value) >= 1e15)
        snprintf(text, NUMBER_BYTES, "%.2e", value);
    else
        snprintf(text, NUMBER_BYTES, "%.*f", decimals_of(value), value);
    return units[unit];
}

const char *number_short(double value, char text[NUMBER_BYTES])
{
    if (!isfinite(value))
        return strcpy(text, "-");
    const char *unit = write_digits(value, text);
    return strcat(text, unit);
}

const char *number_tick(double value, char text[NUMBER_BYTES])
{
    if (!isfinite(value))
        return strcpy(text, "-");
    const char *unit = write_digits(value, text);
    size_t len = strlen(text);
    if (strchr(text, '.') && !strchr(text, 'e')) {
        while (text[len - 1] == '0')
            text[--len] = '\0';
        if (text[len - 1] == '.')
            text[--len] = '\0';
    }
    return strcat(text, unit);
}

const char *number_grouped(double value, char text[NUMBER_BYTES])
{
    char digits[NUMBER_BYTES];
    if (!isfinite(value) || fabs(value) < 999.5 || fabs(value) >= 1e15)
        return number_short(value, text);
    int len = snprintf(digits, sizeof digits, "%.0f", fabs(value));
    char *at = text;
    if (value < 0)
        *at++ = '-';
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}
