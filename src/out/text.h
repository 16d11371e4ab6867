/* Lines for people, and numbers in them. */
#ifndef OUT_TEXT_H
#define OUT_TEXT_H

#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 100 /* no line is longer */
#define TEXT_MAX     32  /* bytes of a number */

/* 1234567 as 1,234,567 */
const char *text_grouped(uint64_t number, char text[TEXT_MAX]);
/* With as many of the decimals as fit into so many columns, and if need be in thousands (k), millions
 * (M) and so on. */
char *text_fit(double value, int width, int decimals, char text[TEXT_MAX]);
/* "16", or "16 to 64". */
const char *text_range(unsigned least, unsigned most, char text[TEXT_MAX]);
/* "s", or "" for one. */
const char *text_plural(uint64_t count);

/* Prints a line that begins with `head`. If it would be longer than TEXT_COLUMNS, it goes on in the
 * next one, behind as many spaces. A word that is longer than a line is cut. */
void text_wrap(FILE *out, const char *head, const char *text);
/* The same with a format. */
void text_say(FILE *out, const char *head, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
