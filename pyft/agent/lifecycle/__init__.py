"""From a server's start to its end and the next one's: reports events, performs actions."""
