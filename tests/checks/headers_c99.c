/* One public header, HEADER, as the only thing that a C99 program includes.  Compiled once for each. */
#include HEADER

/* Something of its own, so that the unit is not empty. */
int headers_c99_unit(void);
int headers_c99_unit(void)
{
    return 0;
}
