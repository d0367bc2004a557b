"""A trained model behind an API that existing clients speak: `clearhead serve RUN…`.

Read in this order: requests.py (what may be asked) · waiting.py, completing.py, together.py (what waits is decoded as
one batch) · texts.py, growing.py, answers.py (texts to tokens, tokens to the shapes of OpenAI's API) · gate.py (who may
ask) · app.py (the paths) · description.py (the same as OpenAPI) · server.py (sockets, signals, slow clients).
"""
