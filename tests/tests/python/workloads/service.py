"""A service in Flask with a thread for each connection, and a program with clients that load it."""
import http.client
import subprocess
import sys
import threading

CLIENTS, REQUESTS = 4, 50


def client(port, results, number):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for i in range(REQUESTS):
        connection.request("GET", f"/orders/{i}" if i % 2 else f"/sum?count={i}")
        response = connection.getresponse()
        results[number] = results.get(number, 0) + len(response.read()) + response.status


def clients(port):
    results = {}
    threads = [threading.Thread(target=client, args=(port, results, i)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sorted(results.items()))


def service():
    import logging

    import flask
    import werkzeug.serving
    from naps import nap

    app = flask.Flask(__name__)
    page = "<ul>{% for order in orders %}<li>{{ order.name }}: {{ order.price | round(2) }}</li>{% endfor %}</ul>"

    def order(i):
        return {"name": f"order {i}", "price": i * 1.1}

    @app.route("/orders/<int:number>")
    def orders(number):
        if number % 10 == 1:
            nap()
        return flask.render_template_string(page, orders=[order(i) for i in range(number)])

    @app.route("/sum")
    def total():
        count = int(flask.request.args["count"])
        return flask.jsonify(total=sum(order(i)["price"] for i in range(count * 20)))

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    subprocess.run([sys.executable, __file__, str(server.server_port)], check=True)
    server.shutdown()
    thread.join()


clients(int(sys.argv[1])) if len(sys.argv) > 1 else service()
