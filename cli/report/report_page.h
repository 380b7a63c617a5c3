/* The page of `gradwire report` as it stands in report_page.html, .css, .js and report_page_auto.js, embedded by the
 * build (cmake/embed.cmake); each ends with a NUL. */
#ifndef GW_CLI_REPORT_PAGE_H
#define GW_CLI_REPORT_PAGE_H

extern const char gw_cli_report_page_html[], gw_cli_report_page_css[], gw_cli_report_page_js[],
    gw_cli_report_page_auto_js[];

#endif
