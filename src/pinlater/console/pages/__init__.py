"""The dashboard: pages that the console renders, for operators with a browser.

`routes` is the one table of pages and actions. A page is a function from a request to a frozen view, and a template. Its data comes from
the endpoints of `/v1`, which `Api` calls in this process; no page calls the client of the servers. Only `visitors` does, for the rights of
a visitor, by the method behind `GET /v1/server`. An action is a form that a browser posts; it calls an endpoint, and the answer is a
redirect to a page that reports the result.

Everything works without JavaScript. With it, a page reloads its data every two seconds while its tab is visible, one request at a time, and
replaces the parts marked `data-live`. Polling keeps no connection open, so it needs no bound other than those of all requests.

Text from jobs, queues and servers reaches a page only through autoescaping templates, and no page has inline scripts or styles.
"""
