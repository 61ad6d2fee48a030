"""What local web pages share: who may ask, and how a server is started."""
